"""ModuleNet: a QatNet in the form that torch's users expect of a network, with modules under their exported names.

    net.layer1.conv1.weight                     parameters and statistics under the names of the checkpoint
    net.layer1.conv1.weight_fake_quant          fake-quantizers of weights and biases at their modules
    net.relu_post_act_fake_quantizer            those of activations at the top

The modules hold the tensors: whatever is done to them there (an optimizer, `to`, `load_state_dict`, `requires_grad_`,
another parameter in its place) is what the network computes with. `train()` and `eval()` of one hold for the batch
norms and dropouts below it. They are not called one by one, because an ONNX file has nodes and no modules: hooks on
them are refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from onnxq.errors import ConfigError, ModelError
from onnxq.qat.float_checkpoint import match_checkpoint, without_wrapper
from onnxq.qat.module_tree import ModuleTree
from onnxq.qat.net import QatNet
from onnxq.torchnet.fake_quantize import FakeQuantize
from onnxq.torchnet.values import Value

with contextlib.suppress(ImportError):  # a part of torch that may move elsewhere
    from torch.ao.quantization.fake_quantize import FakeQuantizeBase

    # model.apply(torch.ao.quantization.disable_observer) looks for this type, and would pass by others in silence.
    FakeQuantizeBase.register(FakeQuantize)


TREE = "_onnxq"
"""The one attribute of a ModuleNet that is not the network's own."""

_OF_TORCH = frozenset(dir(nn.Module()))

TensorsByName = Mapping[str, Any]
"""What torch calls a state_dict."""


class ModuleNet(nn.Module):
    """A network with the modules of the exported one, whatever their names: they come before the methods below."""

    _onnxq: ModuleTree

    def __getattribute__(self, name: str) -> Any:
        """The modules and tensors of the network before what only this class has."""
        if name not in _OF_TORCH and name != TREE:
            own = super().__getattribute__("__dict__")
            for table in (own.get("_modules"), own.get("_parameters"), own.get("_buffers")):
                if table and name in table:
                    return table[name]
        return super().__getattribute__(name)

    # ---- running -------------------------------------------------------------------------------------------------

    def forward(self, *inputs: Value) -> Any:
        """The output of the network, or a tuple of several."""
        return self._onnxq.settled()(*inputs)

    def train(self, mode: bool = True) -> ModuleNet:
        super().train(mode)
        self._onnxq.net.train(mode)
        return self

    def settled(self) -> QatNet:
        """The net with the present tensors, for `onnxq.qat.convert` and `deliver`."""
        return self._onnxq.settled()

    # ---- switches ------------------------------------------------------------------------------------------------

    def fake_quantizers(self) -> Iterator[tuple[str, FakeQuantize]]:
        """Every fake-quantizer with its name."""
        return self._onnxq.fake_quantizers()

    def enable_observer(self, enabled: bool = True) -> None:
        """Let quantizers whose range is a min-max follow the values while training; not those that learn a scale."""
        self._onnxq.net.observe(enabled)

    def disable_observer(self) -> None:
        self._onnxq.net.observe(False)

    def enable_fake_quant(self, enabled: bool = True) -> None:
        """Switch every fake-quantizer; single ones have the same methods."""
        self._onnxq.net.quantize(enabled)

    def disable_fake_quant(self) -> None:
        self._onnxq.net.quantize(False)

    def freeze_bn_stats(self) -> None:
        """Keep the statistics of batch norms from now on; torch calls it so for its own modules."""
        self._onnxq.net.mode.live_statistics = False

    def update_bn_stats(self) -> None:
        """Let batch norms learn their statistics again, in a net that was made for it."""
        net = self._onnxq.net
        if net.batch_norms != "live":
            raise ConfigError(
                f"the batch norms of this network are {net.batch_norms}: prepare it with freeze_bn=False (or "
                "batch_norms='live') to learn statistics"
            )
        net.mode.live_statistics = True

    # ---- states --------------------------------------------------------------------------------------------------

    def load_state_dict(self, state_dict: TensorsByName, strict: bool = True, assign: bool = False) -> Any:
        """Load a state of this network, or a checkpoint of the one that was exported, where names match.

        A checkpoint of the original network has no fake-quantizers in it: these keep their scales, so load it before
        calibration. What it cannot be matched with is an error, or part of the result where `strict` is False.
        """
        tree = self._onnxq
        state_dict = without_wrapper(state_dict, tree.names)
        if any(f"{name}." in key for key in state_dict for name in tree.names.quantizers.values()):
            return super().load_state_dict(state_dict, strict, assign)
        net = tree.settled()
        needed = [name for name in tree.held if name in tree.names.constants]
        found = match_checkpoint(state_dict, tree.names, net.graph, needed, net.original)
        if strict and not found.complete:
            raise ModelError(f"load_state_dict: {found.what_is_wrong()}. With strict=False the rest is loaded")
        for constant, value in found.values.items():
            net.set_value(constant, value)
        missing = [*found.missing, *found.folded]
        return torch.nn.modules.module._IncompatibleKeys(missing, found.unexpected)

    def __deepcopy__(self, memo: dict[int, Any]) -> ModuleNet:
        twin = type(self).__new__(type(self))
        nn.Module.__init__(twin)
        memo[id(self)] = twin
        twin.training = self.training
        twin.__dict__[TREE] = self._onnxq.twin(twin, memo)
        return twin
