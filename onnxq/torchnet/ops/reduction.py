"""Reductions over axes: the Reduce family, CumSum and CumProd.

Without axes everything is reduced, or, with `noop_with_empty_axes`, nothing: then only the rest of the operator is
done, such as the square of ReduceSumSquare. An empty set has the sum 0, the product 1, the maximum -inf and the minimum
inf, or the lowest and highest number of an integer type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from onnxq.torchnet.call import Call
from onnxq.torchnet.ops.widen import widened
from onnxq.torchnet.registry import Builder, Kernel, op
from onnxq.torchnet.values import Value

Axes = tuple[int, ...]


@dataclass(frozen=True)
class Reduction:
    """What is done over axes, and what is left to do when there are none."""

    over: Callable[[Tensor, Axes, bool], Tensor]
    alone: Callable[[Tensor], Tensor]
    ordered: bool = False


def _same(x: Tensor) -> Tensor:
    return x


def _sum(x: Tensor, axes: Axes, keep: bool) -> Tensor:
    return x.sum(axes, keep, dtype=x.dtype)


def _mean(x: Tensor, axes: Axes, keep: bool) -> Tensor:
    if x.is_floating_point():
        return x.mean(axes, keep)
    total = x.sum(axes, keep)
    count = max(1, x.numel() // max(1, total.numel()))
    return total.div(count, rounding_mode="trunc").to(x.dtype)


def _product(x: Tensor, axes: Axes, keep: bool) -> Tensor:
    for axis in sorted((axis % x.ndim for axis in axes), reverse=True):
        x = x.prod(axis, keep, dtype=x.dtype)
    return x


def _lowest(dtype: torch.dtype) -> float | int | bool:
    if dtype is torch.bool:
        return False
    return float("-inf") if dtype.is_floating_point else torch.iinfo(dtype).min


def _highest(dtype: torch.dtype) -> float | int | bool:
    if dtype is torch.bool:
        return True
    return float("inf") if dtype.is_floating_point else torch.iinfo(dtype).max


def _maximum(x: Tensor, axes: Axes, keep: bool) -> Tensor:
    if x.numel() == 0:
        return torch.full_like(x.sum(axes, keep), _lowest(x.dtype), dtype=x.dtype)
    return x.amax(axes, keep)


def _minimum(x: Tensor, axes: Axes, keep: bool) -> Tensor:
    if x.numel() == 0:
        return torch.full_like(x.sum(axes, keep), _highest(x.dtype), dtype=x.dtype)
    return x.amin(axes, keep)


def _in_float(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """A function of real numbers, for integers too."""
    return function(x) if x.is_floating_point() else function(x.double()).to(x.dtype)


def _norm1(x: Tensor, axes: Axes, keep: bool) -> Tensor:
    return _sum(x.abs(), axes, keep)  # `vector_norm` adds up in one row, which is less exact


def _norm2(x: Tensor, axes: Axes, keep: bool) -> Tensor:
    return _in_float(lambda real: torch.linalg.vector_norm(real, 2, axes, keep), x)


def _log_sum(x: Tensor, axes: Axes, keep: bool) -> Tensor:
    return _in_float(torch.log, _sum(x, axes, keep))


def _log_sum_exp(x: Tensor, axes: Axes, keep: bool) -> Tensor:
    return _in_float(lambda real: real.logsumexp(axes, keep), x)


def _sum_of_squares(x: Tensor, axes: Axes, keep: bool) -> Tensor:
    return _sum(x * x, axes, keep)


_REDUCTIONS = {
    "ReduceSum": Reduction(_sum, _same),
    "ReduceMean": Reduction(_mean, _same),
    "ReduceProd": Reduction(_product, _same),
    "ReduceMax": Reduction(_maximum, _same, ordered=True),
    "ReduceMin": Reduction(_minimum, _same, ordered=True),
    "ReduceL1": Reduction(_norm1, torch.abs),
    "ReduceL2": Reduction(_norm2, torch.abs),
    "ReduceLogSum": Reduction(_log_sum, lambda x: _in_float(torch.log, x)),
    "ReduceLogSumExp": Reduction(_log_sum_exp, _same),
    "ReduceSumSquare": Reduction(_sum_of_squares, torch.square),
}

_AXES_ARE_INPUT = {"ReduceSum": 13}
"""The version from which axes are an input; 18 for all others."""


def _axes_as_attribute(reduction: Reduction) -> Builder:
    def builder(call: Call) -> Kernel:
        keep = bool(call.attribute("keepdims", 1))
        axes = tuple(call.attribute("axes", None) or ())

        def run(x: Tensor) -> Tensor:
            chosen = axes or tuple(range(x.ndim))
            return reduction.over(x, chosen, keep) if chosen else reduction.alone(x)

        return widened(call, run, ordered=reduction.ordered)

    return builder


def _axes_as_input(reduction: Reduction) -> Builder:
    def builder(call: Call) -> Kernel:
        keep = bool(call.attribute("keepdims", 1))
        leaves = bool(call.attribute("noop_with_empty_axes", 0))
        known = call.constant_ints(1)
        if known:
            fixed = tuple(known)
            return widened(call, lambda x, axes: reduction.over(x, fixed, keep), ordered=reduction.ordered)
        axes_of = call.ints(1)

        def run(x: Tensor, axes: Value = None) -> Tensor:
            chosen = () if axes is None else tuple(axes_of(axes))
            if not chosen and not leaves:
                chosen = tuple(range(x.ndim))
            return reduction.over(x, chosen, keep) if chosen else reduction.alone(x)

        return widened(call, run, ordered=reduction.ordered)

    return builder


for _name, _reduction in _REDUCTIONS.items():
    op(_name, since=1)(_axes_as_attribute(_reduction))
    op(_name, since=_AXES_ARE_INPUT.get(_name, 18))(_axes_as_input(_reduction))


# ---- running sums and products ---------------------------------------------------------------------------------------


def _running(call: Call, accumulate: Callable[[Tensor, int], Tensor], neutral: int) -> Kernel:
    """`exclusive` leaves the value itself out; `reverse` begins at the end."""
    exclusive, backward = bool(call.attribute("exclusive", 0)), bool(call.attribute("reverse", 0))
    axis_of = call.ints(1)

    def run(x: Tensor, along: Value) -> Tensor:
        axis = axis_of(along)[0]
        turned = x.flip(axis) if backward else x
        if exclusive and x.shape[axis]:
            first = torch.full_like(turned.narrow(axis, 0, 1), neutral)
            turned = torch.cat([first, turned.narrow(axis, 0, x.shape[axis] - 1)], axis)
        result = accumulate(turned, axis)
        return result.flip(axis) if backward else result

    return widened(call, run)


@op("CumSum", since=11)
def cumulative_sum(call: Call) -> Kernel:
    return _running(call, lambda x, axis: x.cumsum(axis, dtype=x.dtype), 0)


@op("CumProd", since=26)
def cumulative_product(call: Call) -> Kernel:
    return _running(call, lambda x, axis: x.cumprod(axis, dtype=x.dtype), 1)
