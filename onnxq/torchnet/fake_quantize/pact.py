"""PACT, "Parameterized Clipping Activation" (Choi et al. 2018): the ends of the range are trained.

    high = |alpha|                     low = -|alpha|    symmetric, signed
                                       low = 0           no negative numbers
                                       low = -|lower|    asymmetric, where calibration saw negative values
    dy / dx = 1 where low < x < high, else 0
    dy / dalpha = 1 where x >= high  (symmetric: -1 where x <= low);  dy / dlower = -1 where x <= low

Scale and zero point follow from the range by the formula of `onnxq.numerics`. The range starts as the calibrated one,
which has been limited to the argument alpha; as long as it has not moved, its numbers are the calibrated ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from onnxq.numerics import MIN_SCALE
from onnxq.torchnet.fake_quantize.base import FAKE_QUANTIZERS, FakeQuantize
from onnxq.torchnet.fake_quantize.grids import grid_values
from onnxq.torchnet.fake_quantize.layout import Layout
from onnxq.torchnet.fake_quantize.observing import numbers_of_range, range_of
from onnxq.types.qparams import QParams
from onnxq.types.spec import QuantSpec


class LearntRange(torch.autograd.Function):
    """Quantized values with gradients for x and for the two ends of the range, single numbers both."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, low: Tensor, high: Tensor, scale: Tensor, zero_point: Tensor, spec: QuantSpec
    ) -> Tensor:
        ctx.save_for_backward(x, low, high)
        return grid_values(x, scale, zero_point, spec)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None, None, None, None]:
        x, low, high = ctx.saved_tensors
        to_x = _between(gradient, x, low, high)
        to_low = to_high = None
        if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
            outside = gradient - to_x
            to_high = torch.ops.aten.threshold_backward(outside, x, 0.0).sum()  # of values above zero
            to_low = outside.sum() - to_high
        return to_x, to_low, to_high, None, None, None


def _between(gradient: Tensor, x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    if x.is_cuda:
        return torch.where((x > low) & (x < high), gradient, gradient.new_zeros(()))
    return torch.ops.aten.hardtanh_backward(gradient, x, float(low), float(high))


@FAKE_QUANTIZERS.register("pact")
class Pact(FakeQuantize):
    """A learnt range; while observing is on, the range of the values sets it anew."""

    observes_by_default = False
    lr_multipliers: ClassVar[Mapping[str, float]] = {"alpha": 10.0, "lower": 10.0}  # a range is many steps
    settled_alpha: Tensor
    settled_lower: Tensor

    def init_qparams(self, qparams: QParams) -> None:
        super().init_qparams(qparams)
        if not self.spec.has_scale:
            return
        low, high = range_of(qparams)
        self.alpha = nn.Parameter(torch.tensor(float(high)))
        # Not where the range has no negative part: relu's zeros stay the lowest values.
        self.lower = nn.Parameter(torch.tensor(-float(low))) if self._two_ends and low < 0 else None
        self.register_buffer("settled_alpha", self.alpha.detach().clone())
        self.register_buffer("settled_lower", torch.tensor(max(0.0, -float(low))))

    @property
    def _two_ends(self) -> bool:
        return not self.spec.symmetric

    def set_qparams(self, qparams: QParams) -> None:
        low, high = range_of(qparams)
        if self._two_ends and self.lower is None:
            # Calibration saw no negative values; those of a later batch are cut off like before.
            ends = torch.zeros((), dtype=torch.float64), torch.tensor(float(high), dtype=torch.float64)
            qparams = numbers_of_range(*ends, self.spec, self.minimum_scale)
            low, high = range_of(qparams)
        super().set_qparams(qparams)
        with torch.no_grad():
            self.alpha.fill_(float(high))
            if self.lower is not None:
                self.lower.fill_(-float(low))
            self.settled_alpha.copy_(self.alpha)
            self.settled_lower.fill_(max(0.0, -float(low)))

    def ends(self) -> tuple[Tensor, Tensor]:
        """Low and high end of the range, with their gradients."""
        high = self.alpha.abs()
        if self.lower is not None:
            return -self.lower.abs(), high
        if self.spec.ends[0] == 0 or self._two_ends:
            return torch.zeros_like(high), high
        return -high, high

    def qparams(self) -> tuple[Tensor, Tensor]:
        if not self.spec.has_scale or self._unmoved():
            return self.scale, self.zero_point
        low, high = (end.detach() for end in self.ends())
        if not bool(low.isfinite() & high.isfinite()):
            return self.scale * torch.nan, self.zero_point  # the loss is to show it
        found = numbers_of_range(low, high.clamp(min=self._narrowest), self.spec, self.minimum_scale)
        scale, zero_point = torch.from_numpy(np.array(found.scale)), torch.from_numpy(np.array(found.zero_point))
        return scale.to(self.alpha.device), zero_point.to(self.alpha.device)

    @property
    def _narrowest(self) -> float:
        """A range of exactly zero would stand for a range of 1."""
        return MIN_SCALE * (self.spec.ends[1] or 1)

    def _unmoved(self) -> bool:
        lower = self.settled_lower if self.lower is None else self.lower
        return bool((self.alpha == self.settled_alpha) & (lower == self.settled_lower))

    def quantize(self, x: Tensor, scale: Tensor, zero_point: Tensor, layout: Layout) -> Tensor:
        if not self.spec.has_scale:
            return super().quantize(x, scale, zero_point, layout)
        low, high = self.ends()
        return LearntRange.apply(x, low, high, scale, zero_point, self.spec)  # type: ignore[no-untyped-call]
