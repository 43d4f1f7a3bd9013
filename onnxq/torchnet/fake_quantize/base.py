"""FakeQuantize: the quantizer of one tensor as a module of torch, and the registry of its kinds.

Every kind computes the numbers of `onnxq.numerics` (`grids.py`); kinds differ in what training changes and in the
gradients. A module has the numbers of its `QParams`, in their shapes, as parameters and buffers:

    observing    while training, the scale follows the values that come by (`observing.py`); off at construction
    quantizing   values are quantized; off, they pass unchanged, and the file has no quantizer there
    muted        values pass unchanged for a while, the float phase of a schedule; the file has the quantizer
    follows      whether there is a range to follow: not where another observer than a min-max has chosen the scale
    shared       several tensors have this module, and one scale: what they were in a step counts from the next step on,
                 when `catch_up` is called, so that within a step all of them see the same scale
    to_qparams   exactly the numbers that forward uses now

Values of another type than float32 are computed in float32, and the result has their type. NaN stays NaN.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from onnxq.registry import Registry
from onnxq.torchnet.fake_quantize.functions import straight_through
from onnxq.torchnet.fake_quantize.layout import Layout, layout_of
from onnxq.torchnet.fake_quantize.observing import MOMENTUM, numbers_of_range, own_range, range_of, shared_range
from onnxq.types.fake_quantizers import FakeQuantizer, add_class
from onnxq.types.plan import Placement
from onnxq.types.qparams import QParams

RENAMED = {
    "hold": "init_qparams",
    "take": "set_qparams",
    "numbers": "qparams",
    "settled": "export_values",
    "speeds": "lr_multipliers",
}
"""What users' own kinds may still call and override by its old name, for one version."""


def _keep_old_names(cls: type) -> None:
    """Let the old names stand for a class's own methods, so that `super()` of a user's kind finds the right one."""
    for old, new in RENAMED.items():
        own = vars(cls).get(new)
        if own is not None and old not in vars(cls):
            setattr(cls, old, _warning(f"{cls.__name__}.{old} is now called {new}", own) if callable(own) else own)


def _warning(text: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*arguments: Any, **named: Any) -> Any:
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return method(*arguments, **named)

    return call


class FakeQuantize(nn.Module):
    """The base of all kinds: scale and zero point are given or observed, gradients go straight through.

    A kind overrides `init_qparams` (which numbers are learnt), `set_qparams` (new numbers from outside), `qparams`
    (those that forward uses), `transform` (what is quantized) and `quantize` (the gradients), as far as it differs.
    """

    observes_by_default: ClassVar[bool] = True
    """Whether observing is on when training starts: not for kinds that learn their scale."""

    lr_multipliers: ClassVar[Mapping[str, float]] = {}
    """Parameter -> its learning rate in multiples of that of a scale, for those in other units than a scale."""

    scale: Tensor
    zero_point: Tensor
    low: Tensor
    high: Tensor

    def __init_subclass__(cls, **settings: object) -> None:
        super().__init_subclass__(**settings)
        for old, new in RENAMED.items():
            if old in vars(cls):
                warnings.warn(f"{cls.__name__}.{old} is now called {new}", DeprecationWarning, stacklevel=2)
                setattr(cls, new, vars(cls)[old])
        _keep_old_names(cls)

    def __init__(self, placement: Placement, qparams: QParams, settings: FakeQuantizer) -> None:
        super().__init__()
        self.tensor = placement.tensor
        self.role = placement.role
        self.spec = qparams.spec
        self.minimum_scale = placement.minimum_scale
        self.settings = settings
        self.observing = False
        self.observing_in_eval = False
        self.quantizing = True
        self.muted = False
        self.follows = True
        self.shared = False
        self._seen: tuple[Tensor, Tensor] | None = None
        self.register_state_dict_pre_hook(_complete)  # type: ignore[no-untyped-call]
        self.init_qparams(qparams)
        if self.averages:
            low, high = range_of(qparams)
            self.register_buffer("low", torch.from_numpy(np.array(low)))
            self.register_buffer("high", torch.from_numpy(np.array(high)))

    @property
    def averages(self) -> bool:
        """Whether observing averages over batches; constants have the range that they have now."""
        return self.spec.has_scale and self.role in ("activation", "output")

    def init_qparams(self, qparams: QParams) -> None:
        """Make the parameters and buffers, from the numbers of calibration."""
        self.register_buffer("scale", torch.from_numpy(qparams.scale.copy()))
        self.register_buffer("zero_point", torch.from_numpy(qparams.zero_point.copy()))

    def set_qparams(self, qparams: QParams) -> None:
        """Set the numbers to others of the same shapes, such as those of an observed range."""
        with torch.no_grad():
            self.scale.copy_(torch.from_numpy(qparams.scale.copy()))
            self.zero_point.copy_(torch.from_numpy(qparams.zero_point.copy()))

    def qparams(self) -> tuple[Tensor, Tensor]:
        """Scale (float32) and zero point that forward uses, with their gradients where they are learnt."""
        return self.scale, self.zero_point

    def transform(self, x: Tensor) -> Tensor:
        """The float values that are quantized, from what the network's parameter or activation holds."""
        return x

    def quantize(self, x: Tensor, scale: Tensor, zero_point: Tensor, layout: Layout) -> Tensor:
        """The quantized values of split float32 values; scale and zero point are spread (`Layout`)."""
        return straight_through(x, scale, zero_point, self.spec)

    def forward(self, x: Tensor) -> Tensor:
        values = self.transform(x) if x.dtype == torch.float32 else self.transform(x.float()).to(x.dtype).float()
        if self._observes_now():
            self.observe(values)
        if self.quantizing and not self.muted:
            values = self.quantized(values)
        return values if values.dtype == x.dtype else values.to(x.dtype)

    def _observes_now(self) -> bool:
        return self.observing and (self.training or self.observing_in_eval)

    def enable_fake_quant(self, enabled: bool = True) -> None:
        """Quantize values, or let them pass unchanged: what is off when files are written is off in them."""
        self.quantizing = bool(enabled)

    def disable_fake_quant(self) -> None:
        self.enable_fake_quant(False)

    def enable_observer(self, enabled: bool = True) -> None:
        """Follow the values until `disable_observer`, in `eval()` too; kinds that learn a scale as well."""
        if enabled and not self.follows:
            warnings.warn(
                f"the range of '{self.tensor}' was not found by min-max, and stays as calibration found it: training "
                "follows no other observer",
                stacklevel=2,
            )
            return
        self.catch_up()
        self.observing = self.observing_in_eval = bool(enabled)

    def disable_observer(self) -> None:
        self.enable_observer(False)

    def quantized(self, values: Tensor) -> Tensor:
        """The quantized values of float32 values, with the numbers of now."""
        scale, zero_point = self.qparams()
        if self._observes_now():
            # The next observation changes them in place; gradients of this call, if they come later, need these.
            scale, zero_point = scale.clone(), zero_point.clone()
        layout = layout_of(values.shape, scale, self.spec, self.tensor)
        split = self.quantize(layout.split(values), layout.spread(scale), layout.spread(zero_point), layout)
        return layout.join(split)

    @torch.no_grad()
    def observe(self, values: Tensor) -> None:
        """Follow these values: the range of a constant, or one more batch of an activation."""
        if not self.spec.has_scale or values.numel() == 0:
            return
        layout = layout_of(values.shape, self.qparams()[0], self.spec, self.tensor)
        low, high = layout.ranges(values.detach().float())
        found = shared_range(low, high) if self.averages else own_range(low, high)
        if found is None:
            return
        if not self.shared:
            self._follow(found)
        elif self._seen is None:
            self._seen = found
        else:
            self._seen = (torch.minimum(self._seen[0], found[0]), torch.maximum(self._seen[1], found[1]))

    @torch.no_grad()
    def catch_up(self) -> None:
        """Follow what the tensors of a shared module were in the step before, all of them together."""
        seen, self._seen = self._seen, None
        if seen is not None:
            self._follow(seen)

    def _follow(self, found: tuple[Tensor, Tensor]) -> None:
        if not self.averages:
            self.set_qparams(numbers_of_range(*found, self.spec, self.minimum_scale))
            return
        for average, end in zip((self.low, self.high), found, strict=True):
            average.mul_(MOMENTUM).add_(end, alpha=1 - MOMENTUM)
        self.set_qparams(numbers_of_range(self.low, self.high, self.spec, self.minimum_scale))

    def to_qparams(self) -> QParams:
        """Exactly the numbers that forward uses now."""
        scale, zero_point = self.qparams()
        return QParams(self.spec, scale.detach().cpu().numpy(), zero_point.detach().cpu().to(torch.int32).numpy())

    @property
    def trains_values(self) -> bool:
        """Whether gradients reach the values that are quantized."""
        return True

    def latent(self, values: Tensor) -> Tensor:
        """What a trained parameter is to hold so that forward of it means `values`."""
        return values

    @torch.no_grad()
    def export_values(self, x: Tensor) -> Tensor:
        """Float32 values for the file: `numerics.fake_quantize` of them is what forward(x) gives in eval mode."""
        return self.transform(x.detach().float())

    def extra_repr(self) -> str:
        scale, zero_point = (numbers.detach() for numbers in self.qparams())
        one = scale.numel() == 1
        numbers = (
            f"scale={scale.item():.6g}, zero_point={zero_point.item():.6g}"
            if one
            else f"{scale.numel()} scales from {scale.min().item():.6g} to {scale.max().item():.6g}"
        )
        switches = f"fake_quant_enabled={self.quantizing}, observer_enabled={self.observing}"
        return f"{self.settings}, {self.role} '{self.tensor}', {self.spec}, {switches}, {numbers}"


_keep_old_names(FakeQuantize)


def _complete(module: FakeQuantize, prefix: str, keep_vars: bool) -> None:
    """Before a state is taken: what the last step has seen belongs to it. A named function, so that modules pickle."""
    module.catch_up()


class _Classes(Registry[type[FakeQuantize]]):
    """Classes by their kind; configurations may name the class as well."""

    def add(self, name: str, item: type[FakeQuantize]) -> None:
        super().add(name, item)
        add_class(name, item)


FAKE_QUANTIZERS = _Classes("fake-quantizer", "onnxq.torchnet.fake_quantize")
"""Kind of `onnxq.types.fake_quantizers` -> its module."""
