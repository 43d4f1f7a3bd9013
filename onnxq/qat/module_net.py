"""ModuleNet: a QatNet in the form that torch's users expect of a network, with modules under their exported names.

    net.layer1.conv1.weight                     parameters and statistics under the names of the checkpoint
    net.layer1.conv1.weight_fake_quant          fake-quantizers of weights and biases at their modules
    net.relu_post_act_fake_quantizer            those of activations at the top

The modules hold the tensors: whatever is done to them there (an optimizer, `to`, `load_state_dict`, `requires_grad_`,
another parameter in its place) is what the network computes with. They are not called one by one, because an ONNX file
has nodes and no modules: hooks on them are refused.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NoReturn

import torch
from torch import nn

from onnxq.errors import ConfigError, ModelError, UnsupportedError
from onnxq.qat.float_checkpoint import match_checkpoint, without_wrapper
from onnxq.qat.module_names import ModuleNames
from onnxq.qat.net import SWITCHES, QatNet
from onnxq.torchnet.fake_quantize import FakeQuantize
from onnxq.torchnet.values import Value

with contextlib.suppress(ImportError):  # a part of torch that may move elsewhere
    from torch.ao.quantization.fake_quantize import FakeQuantizeBase

    # model.apply(torch.ao.quantization.disable_observer) looks for this type, and would pass by others in silence.
    FakeQuantizeBase.register(FakeQuantize)


_HOOKS = tuple(key for key in nn.Module().__dict__ if "_hook" in key)
"""Tables in which torch keeps the hooks of a module."""

TensorsByName = Mapping[str, Any]
"""What torch calls a state_dict."""


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


class ModuleNet(nn.Module):
    """A network with the modules of the exported one; `net` is the QatNet behind it, `names` how its parts are called.

    The tensors of the net are held by the modules, and given to the net before each run.
    """

    net: QatNet
    names: ModuleNames
    _of_the_file: ClassVar[tuple[str, ...]] = ("names",)
    """What a copy has in common with this one."""

    def __init__(self, net: QatNet, names: ModuleNames) -> None:
        super().__init__()
        self._held: dict[str, tuple[nn.Module, str]] = {}
        self._take(net, names)

    # ---- the tree ------------------------------------------------------------------------------------------------

    def _take(self, net: QatNet, names: ModuleNames) -> None:
        """Hang the tensors and fake-quantizers of a net into the tree."""
        self.__dict__["net"], self.__dict__["names"] = net, names  # no submodule: everything would have two names
        self._held.clear()
        held = [name for name in net.constant_names() if name in net._parameters or name in net._buffers]
        taken = {names.constants[name] for name in held if name in names.constants}
        for constant in held:
            name = names.constants.get(constant) or _free_key(constant, taken)
            taken.add(name)
            path, _, last = name.rpartition(".")
            self._held[constant] = self._part(path), last
        # Two constants in one place would compute with the values of one.
        assert len({(id(part), key) for part, key in self._held.values()}) == len(self._held)
        for constant, (part, key) in self._held.items():
            if constant in net._parameters:
                part._buffers.pop(key, None)
                part._parameters[key] = net._parameters[constant]
            else:
                part._parameters.pop(key, None)
                part._buffers[key] = net._buffers[constant]
                if constant not in names.constants:
                    part._non_persistent_buffers_set.add(key)
        for tensor, module in net.fake_quantizers.items():
            path, _, last = names.quantizers[tensor].rpartition(".")
            self._part(path)._modules[last] = module
        self.train(self.training)

    def _part(self, path: str) -> nn.Module:
        module: nn.Module = self
        for step in path.split(".") if path else ():
            if step not in module._modules:
                module._modules[step] = Part()
            module = module._modules[step]  # type: ignore[assignment]
        return module

    def renew(self, net: QatNet, names: ModuleNames) -> None:
        """Go on with another net of the same graph, such as one that was calibrated: parameters stay the same objects.

        Weights keep their values, fake-quantizers have those of the new net, and switches and hooks are kept.
        """
        self._give()
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
            self._part(path)._modules.pop(last, None)
        for tensor, module in net.fake_quantizers.items():
            former = before.get(names.quantizers[tensor])
            if former is not None:
                _keep_parameters(former, module)
                for switch in SWITCHES:
                    setattr(module, switch, getattr(former, switch))
                module.__dict__.update({table: former.__dict__[table] for table in _HOOKS})
        self._take(net, names)

    def _give(self) -> None:
        """Let the net compute with what the modules hold now."""
        net = self.net
        for constant, (part, key) in self._held.items():
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

    # ---- running -------------------------------------------------------------------------------------------------

    def forward(self, *inputs: Value) -> Any:
        """The output of the network, or a tuple of several."""
        self._give()
        return self.net(*inputs)

    def run(self, feeds: Mapping[str, Value]) -> dict[str, Value]:
        """Outputs by name from inputs by name."""
        self._give()
        return self.net.run(feeds)

    def train(self, mode: bool = True) -> ModuleNet:
        super().train(mode)
        self.net.train(mode)
        return self

    def settled(self) -> QatNet:
        """The net with the present tensors, for `onnxq.qat.convert` and `deliver`."""
        self._give()
        return self.net

    # ---- switches ------------------------------------------------------------------------------------------------

    def fake_quantizers(self) -> Iterator[tuple[str, FakeQuantize]]:
        """Every fake-quantizer with its name."""
        for tensor, module in self.net.fake_quantizers.items():
            yield self.names.quantizers[tensor], module

    def enable_observer(self, enabled: bool = True) -> None:
        """Let quantizers whose range is a min-max follow the values while training; not those that learn a scale."""
        self.net.observe(enabled)

    def disable_observer(self) -> None:
        self.net.observe(False)

    def enable_fake_quant(self, enabled: bool = True) -> None:
        """Switch every fake-quantizer; single ones have the same methods."""
        self.net.quantize(enabled)

    def disable_fake_quant(self) -> None:
        self.net.quantize(False)

    def freeze_bn_stats(self) -> None:
        """Keep the statistics of batch norms from now on; torch calls it so for its own modules."""
        self.net.mode.live_statistics = False

    def update_bn_stats(self) -> None:
        """Let batch norms learn their statistics again, in a net that was made for it."""
        if self.net.batch_norms != "live":
            raise ConfigError(
                f"the batch norms of this network are {self.net.batch_norms}: prepare it with freeze_bn=False (or "
                "batch_norms='live') to learn statistics"
            )
        self.net.mode.live_statistics = True

    # ---- states --------------------------------------------------------------------------------------------------

    def load_state_dict(self, state_dict: TensorsByName, strict: bool = True, assign: bool = False) -> Any:
        """Load a state of this network, or a checkpoint of the one that was exported, where names match.

        A checkpoint of the original network has no fake-quantizers in it: these keep their scales, so load it before
        calibration. What it cannot be matched with is an error, or part of the result where `strict` is False.
        """
        state_dict = without_wrapper(state_dict, self.names)
        if any(f"{name}." in key for key in state_dict for name in self.names.quantizers.values()):
            return super().load_state_dict(state_dict, strict, assign)
        self._give()
        needed = [name for name in self._held if name in self.names.constants]
        found = match_checkpoint(state_dict, self.names, self.net.graph, needed, self.net.original)
        if strict and not found.complete:
            raise ModelError(f"load_state_dict: {found.what_is_wrong()}. With strict=False the rest is loaded")
        for constant, value in found.values.items():
            self.net.set_value(constant, value)
        missing = [*found.missing, *found.folded]
        return torch.nn.modules.module._IncompatibleKeys(missing, found.unexpected)

    def __deepcopy__(self, memo: dict[int, Any]) -> ModuleNet:
        twin = type(self).__new__(type(self))
        nn.Module.__init__(twin)
        memo[id(self)] = twin
        twin.__dict__.update({key: self.__dict__[key] for key in self._of_the_file if key in self.__dict__})
        twin._held = {}
        twin.training = self.training
        twin._take(copy.deepcopy(self.settled(), memo), self.names)
        self._copy_the_rest(twin, memo)
        return twin

    def _copy_the_rest(self, twin: ModuleNet, memo: dict[int, Any]) -> None:
        """Give a copy what users have put on the modules: attributes, hooks and modules of their own."""
        theirs = dict(twin.named_modules(remove_duplicate=False))
        mine = dict(self.named_modules(remove_duplicate=False))
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
            if isinstance(module, Part | ModuleNet):
                own = {key: value for key, value in module.__dict__.items() if key not in other}
                other.update(copy.deepcopy(own, memo))


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
