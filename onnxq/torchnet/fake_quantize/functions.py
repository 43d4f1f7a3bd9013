"""The gradients: one autograd function for scales that are given, and one for scales that are learnt.

Forward is `grid_values`. With r = x / scale, low and high the ends of the format less the zero point, and y the result:

    dy / dx           1 where low < r < high, else 0                                     straight through
    dy / dscale       (y - x * dy/dx) / scale: round(r) - r inside, low or high outside   LSQ (Esser et al. 2020)
    dy / dzero_point  0 inside, -scale outside                                           LSQ+ (Bhalgat et al. 2020)

The same holds for the floating-point and logarithmic grids, where y / scale depends on x / scale alone. `rounded` says
which ends count: those of the format (LSQ), or half a step further out, where values are still rounded to the end and
not cut off. Only x is kept for the backward pass, and y where the scale is learnt; both are mostly kept by their
neighbours anyway.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onnxq.torchnet.fake_quantize.compiled import learnt_in_c
from onnxq.torchnet.fake_quantize.grids import grid_values
from onnxq.types.spec import QuantSpec

_LARGEST = torch.finfo(torch.float32).max


class StraightThrough(torch.autograd.Function):
    """Quantized values with a gradient for x alone."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, zero_point: Tensor, spec: QuantSpec) -> Tensor:
        ctx.spec = spec
        ctx.save_for_backward(x, scale, zero_point)
        return grid_values(x, scale, zero_point, spec)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        x, scale, zero_point = ctx.saved_tensors
        return inside(x, scale, zero_point, ctx.spec, rounded=True)(gradient), None, None, None


class LearntScale(torch.autograd.Function):
    """Quantized values with gradients for x, scale and zero point; the latter two are multiplied by `factor`."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, scale: Tensor, zero_point: Tensor, spec: QuantSpec, factor: float, rounded: bool
    ) -> Tensor:
        y = grid_values(x, scale, zero_point, spec)
        ctx.spec, ctx.factor, ctx.rounded = spec, factor, rounded
        ctx.save_for_backward(x, y, scale, zero_point)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None, None, None, None]:
        x, y, scale, zero_point = ctx.saved_tensors
        if ctx.needs_input_grad[1] and not ctx.needs_input_grad[2]:
            ends = ends_of(scale, zero_point, ctx.spec, rounded=ctx.rounded)
            found = learnt_in_c(x, y, gradient, scale, zero_point, ends)
            if found is not None:
                return found[0], found[1].div_(scale).mul_(ctx.factor), None, None, None, None
        within = inside(x, scale, zero_point, ctx.spec, rounded=ctx.rounded)
        to_x = within(gradient)
        to_scale = to_zero_point = None
        if ctx.needs_input_grad[1]:
            kept = within(x)
            moved = torch.sub(y, kept, out=kept)
            to_scale = _summed(gradient, moved, scale).div_(scale).mul_(ctx.factor)
        if ctx.needs_input_grad[2]:
            outside = gradient - to_x
            to_zero_point = outside.sum_to_size(zero_point.shape).mul_(scale).mul_(-ctx.factor)
        return to_x, to_scale, to_zero_point, None, None, None


def straight_through(x: Tensor, scale: Tensor, zero_point: Tensor, spec: QuantSpec) -> Tensor:
    """Quantized values with a gradient for x alone; zero where x saturates."""
    return StraightThrough.apply(x, scale, zero_point, spec)  # type: ignore[no-untyped-call]


def learnt_scale(
    x: Tensor, scale: Tensor, zero_point: Tensor, spec: QuantSpec, *, factor: float, rounded: bool
) -> Tensor:
    """Quantized values with gradients for x, scale and zero point, the latter two multiplied by `factor`."""
    return LearntScale.apply(x, scale, zero_point, spec, factor, rounded)  # type: ignore[no-untyped-call]


def stand_in(parameter: Tensor, value: Tensor) -> Tensor:
    """`value` in place of `parameter`, whose gradient goes to the parameter as it is."""
    return StandIn.apply(parameter, value)  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Inside:
    """Which values lie inside the range of a format: those whose `position` lies between `low` and `high`."""

    position: Tensor
    low: float
    high: float

    def __call__(self, values: Tensor) -> Tensor:
        """`values` where x lies inside the range, and 0 elsewhere: a tensor of its own, in one pass."""
        return torch.ops.aten.hardtanh_backward(values, self.position, self.low, self.high)


def inside(x: Tensor, scale: Tensor, zero_point: Tensor, spec: QuantSpec, *, rounded: bool) -> Inside:
    """Which x are inside; `rounded` counts those as well that are rounded to an end and not cut off."""
    low, high = ends_of(scale, zero_point, spec, rounded=rounded)
    if scale.ndim == 0 and not scale.is_cuda:
        return Inside(x, low, high)
    position = x / scale
    return Inside(position if spec.symmetric else position.add_(zero_point), low, high)


def ends_of(scale: Tensor, zero_point: Tensor, spec: QuantSpec, *, rounded: bool) -> tuple[float, float]:
    """The ends of the range: of x where there is a single scale, else of x / scale + zero point."""
    low, high = spec.format.ends(spec, rounded=rounded)
    if scale.ndim == 0 and not scale.is_cuda:
        unit, moved = float(scale), 0.0 if spec.symmetric else float(zero_point)
        return _in_float32((low - moved) * unit), _in_float32((high - moved) * unit)
    return low, high


def _in_float32(end: float) -> float:
    """torch refuses finite numbers that float32 has not; no value reaches them anyway."""
    return math.copysign(math.inf, end) if abs(end) > _LARGEST else end


def _summed(left: Tensor, right: Tensor, scale: Tensor) -> Tensor:
    """The sum of products over the values that share a scale."""
    if scale.ndim == 0 and left.is_contiguous() and right.is_contiguous():
        return torch.dot(left.view(-1), right.view(-1))
    return right.mul_(left).sum_to_size(scale.shape)


class StandIn(torch.autograd.Function):
    """`value` in place of `parameter`, whose gradient goes to the parameter as it is."""

    @staticmethod
    def forward(ctx: Any, parameter: Tensor, value: Tensor) -> Tensor:
        return value

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None
