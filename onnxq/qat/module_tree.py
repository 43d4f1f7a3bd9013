"""ModuleTree: the net behind a ModuleNet, and the modules of the exported network that hold its tensors.

It stands beside the network, in one attribute, because a network may call its own modules as it likes: `net`, `names`.
The modules hold the tensors, and the net is given them before each run.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch
from torch import nn

from onnxq.errors import ConfigError, UnsupportedError
from onnxq.qat.module_names import ModuleNames
from onnxq.qat.net import SWITCHES, QatNet
from onnxq.torchnet.fake_quantize import FakeQuantize
from onnxq.torchnet.values import torch_dtype

if TYPE_CHECKING:
    from onnxq.qat.module_net import ModuleNet

_HOOKS = tuple(key for key in nn.Module().__dict__ if "_hook" in key)
"""Tables in which torch keeps the hooks of a module."""


class Part(nn.Module):
    """A module of the exported network: it holds tensors and fake-quantizers, and is never called."""

    def forward(self, *_: object) -> NoReturn:
        raise UnsupportedError(
            "a module of an ONNX file cannot be called by itself: call the whole network, and name the module in "
            "preserve_attr to have its result as a further output"
        )

    def _no_hooks(self, *_: object, **__: object) -> NoReturn:
        raise UnsupportedError(
            "modules of an ONNX file are not called one by one, so a hook on one would never run: name the module in "
            "preserve_attr to have its result as a further output, or put the hook on a fake-quantizer"
        )

    register_forward_hook = register_forward_pre_hook = _no_hooks
    register_full_backward_hook = register_full_backward_pre_hook = register_backward_hook = _no_hooks


class ModuleTree:
    """The modules below `root`.

    net    what computes
    names  how its constants and fake-quantizers are called in the tree
    held   constant -> the module that holds it, and its key there
    """

    net: QatNet
    names: ModuleNames

    def __init__(self, root: ModuleNet, net: QatNet, names: ModuleNames) -> None:
        self.root = root
        self.held: dict[str, tuple[nn.Module, str]] = {}
        self.take(net, names)

    def take(self, net: QatNet, names: ModuleNames) -> None:
        """Hang the tensors and fake-quantizers of a net into the tree."""
        self.net, self.names = net, names
        self.held.clear()
        held = [name for name in net.constant_names() if name in net._parameters or name in net._buffers]
        taken = {names.constants[name] for name in held if name in names.constants}
        for constant in held:
            name = names.constants.get(constant) or _free_key(constant, taken)
            taken.add(name)
            path, _, last = name.rpartition(".")
            self.held[constant] = self.part(path), last
        # Two constants in one place would compute with the values of one.
        assert len({(id(part), key) for part, key in self.held.values()}) == len(self.held)
        for constant, (part, key) in self.held.items():
            if constant in net._parameters:
                part._buffers.pop(key, None)
                part._parameters[key] = net._parameters[constant]
            else:
                part._parameters.pop(key, None)
                part._buffers[key] = net._buffers[constant]
                if constant not in names.constants:
                    part._non_persistent_buffers_set.add(key)
        net.train(self.root.training)
        for tensor, module in net.fake_quantizers.items():
            path, _, last = names.quantizers[tensor].rpartition(".")
            holder = self.part(path)
            holder._modules[last] = module.train(holder.training)
        for path in names.nodes.values():
            self.part(path)

    def part(self, path: str) -> nn.Module:
        """The module of that path, made where there is none yet."""
        module: nn.Module = self.root
        for step in path.split(".") if path else ():
            if step not in module._modules:
                module._modules[step] = Part().train(module.training)
            module = module._modules[step]  # type: ignore[assignment]
        return module

    def renew(self, net: QatNet, names: ModuleNames) -> None:
        """Go on with another net of the same graph, such as one that was calibrated: parameters stay the same objects.

        Weights keep their values, fake-quantizers have those of the new net, and switches and hooks are kept.
        """
        self.give()
        old = self.net
        net.mode.live_statistics = old.mode.live_statistics
        net.checkpoint_segments = old.checkpoint_segments
        for table in ("_parameters", "_buffers"):
            for constant, tensor in getattr(old, table).items():
                if constant in getattr(net, table):
                    getattr(net, table)[constant] = tensor
        before = {name: old.fake_quantizers[tensor] for tensor, name in self.names.quantizers.items()}
        for name in before:
            path, _, last = name.rpartition(".")
            self.part(path)._modules.pop(last, None)
        self.take(net, names)
        for tensor, module in net.fake_quantizers.items():
            former = before.get(names.quantizers[tensor])
            if former is not None:
                _keep_parameters(former, module)
                for switch in SWITCHES:
                    setattr(module, switch, getattr(former, switch))
                module.__dict__.update({table: former.__dict__[table] for table in _HOOKS})
                module.train(former.training)

    def give(self) -> None:
        """Let the net compute with what the modules hold now, each in the mode of its module."""
        net = self.net
        for constant, (part, key) in self.held.items():
            parameter, buffer = part._parameters.get(key), part._buffers.get(key)
            if parameter is not None:
                net._buffers.pop(constant, None)
                net._parameters[constant] = parameter
                continue
            if buffer is None:
                raise ConfigError(
                    f"'{self.names.constants.get(constant, constant)}' is no parameter of its module any more. "
                    "Parametrizations and pruning of torch work in the forward of a module, and those of an ONNX file "
                    "have none: change the values instead"
                )
            net._parameters.pop(constant, None)
            net._buffers[constant] = buffer
        net.mode.of_nodes = {node: self.part(path).training for node, path in self.names.nodes.items()}

    def fake_quantizers(self) -> Iterator[tuple[str, FakeQuantize]]:
        """Every fake-quantizer with its name."""
        for tensor, module in self.net.fake_quantizers.items():
            yield self.names.quantizers[tensor], module

    def settled(self) -> QatNet:
        """The net with the present tensors."""
        self.give()
        return self.net

    def input_type(self, dtype: np.dtype) -> torch.dtype | None:
        """torch's type for an input: the model's, or another where the modules were brought to it, as by `double()`."""
        graph = self.net.graph
        for constant, (part, key) in self.held.items():
            parameter = part._parameters.get(key)
            if parameter is not None and graph.dtype(constant) == dtype and not self.net.is_rounded(constant):
                return parameter.dtype
        return torch_dtype(dtype)

    def twin(self, root: ModuleNet, memo: dict[int, Any]) -> ModuleTree:
        """A copy below another root, with all that users have put on the modules."""
        found = copy.copy(self)
        found.root, found.held = root, {}
        found.take(copy.deepcopy(self.settled(), memo), self.names)
        theirs = dict(root.named_modules(remove_duplicate=False))
        mine = dict(self.root.named_modules(remove_duplicate=False))
        memo.update({id(module): theirs[path] for path, module in mine.items() if path in theirs})
        for path, module in mine.items():
            parent, _, last = path.rpartition(".")
            if path not in theirs:
                if parent in theirs:
                    theirs[parent]._modules[last] = copy.deepcopy(module, memo)
                continue
            other = theirs[path].__dict__
            other["training"] = module.training
            other.update({table: copy.deepcopy(module.__dict__[table], memo) for table in _HOOKS})
            if module is self.root or isinstance(module, Part):
                own = {key: value for key, value in module.__dict__.items() if key not in other and value is not self}
                other.update(copy.deepcopy(own, memo))
        return found


def _free_key(constant: str, taken: set[str]) -> str:
    """A key for a constant that has no name in torch: without dots, and nobody else's."""
    word = constant.replace(".", "_")
    return next(key for key in (word, *(f"{word}_{n}" for n in range(1, len(taken) + 2))) if key not in taken)


def _keep_parameters(former: FakeQuantize, module: FakeQuantize) -> None:
    """Let a fake-quantizer go on with the parameters of another, at its own values: an optimizer may know them."""
    for key, parameter in former._parameters.items():
        new = module._parameters.get(key)
        if parameter is not None and new is not None and parameter.shape == new.shape:
            with torch.no_grad():
                parameter.copy_(new)
            module._parameters[key] = parameter
