"""Cells: the values of a tensor that share a scale, whatever the granularity.

    PerTensor       one cell
    PerChannel      a cell for each index along the axis
    PerBlock        a cell for each run of `size` values along the axis, for every index of the others

`reduce_cells` goes from values to an array of the shape of the scales, `spread` goes back.
"""

from __future__ import annotations

import numpy as np

from onnxq.numerics import fake_quantize, qparams_from_range, with_float16_scale
from onnxq.numerics.ranges import with_minimum_scale
from onnxq.types import PerChannel, PerTensor, QParams, QuantSpec
from onnxq.types.granularity import Granularity, resolve_axis


def spread(values: np.ndarray, granularity: Granularity, shape: tuple[int, ...]) -> np.ndarray:
    """For each element of a tensor of this shape the entry of `values` that belongs to it; possibly read-only."""
    if isinstance(granularity, PerTensor):
        return np.broadcast_to(values, shape)
    axis = resolve_axis(granularity.axis, len(shape))
    if isinstance(granularity, PerChannel):
        return np.broadcast_to(values.reshape([-1 if i == axis else 1 for i in range(len(shape))]), shape)
    return values.take(np.arange(shape[axis]) // granularity.size, axis)


def reduce_cells(values: np.ndarray, granularity: Granularity, reduction: np.ufunc) -> np.ndarray:
    """One number for each cell: np.add, np.minimum or np.maximum of its values."""
    if isinstance(granularity, PerTensor):
        return np.asarray(reduction.reduce(values, axis=None))
    axis = resolve_axis(granularity.axis, values.ndim)
    if isinstance(granularity, PerChannel):
        return np.asarray(reduction.reduce(values, axis=tuple(i for i in range(values.ndim) if i != axis)))
    if axis == values.ndim - 1:
        return np.asarray(reduction.reduceat(values, np.arange(0, values.shape[axis], granularity.size), axis))
    # Along any other axis numpy's reduceat takes thirty times as long as the sum over an axis of its own.
    size, length = granularity.size, values.shape[axis]
    whole, rest = np.split(values, [length - length % size], axis)
    blocks = whole.reshape(*values.shape[:axis], length // size, size, *values.shape[axis + 1 :])
    found = reduction.reduce(blocks, axis=axis + 1)
    if not rest.shape[axis]:
        return np.asarray(found)
    return np.concatenate([found, reduction.reduce(rest, axis=axis, keepdims=True)], axis)


def cell_ranges(values: np.ndarray, granularity: Granularity) -> tuple[np.ndarray, np.ndarray]:
    """The lowest and the highest value of each cell, zero included."""
    low = reduce_cells(values, granularity, np.minimum).astype(np.float64)
    high = reduce_cells(values, granularity, np.maximum).astype(np.float64)
    return np.minimum(low, 0.0), np.maximum(high, 0.0)


def qparams_of_cells(
    low: np.ndarray, high: np.ndarray, spec: QuantSpec, *, minimum_scale: float = 0.0, float16: bool = False
) -> QParams:
    """Parameters that cover these ranges, within the limits that calibration would hold them in too."""
    found = with_minimum_scale(qparams_from_range(low, high, spec), minimum_scale)
    return with_float16_scale(found) if float16 else found


def round_to_grid(x: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, spec: QuantSpec) -> np.ndarray:
    """The float32 values that `x` becomes with scales and zero points that broadcast against it.

    Bit for bit what `onnxq.numerics` computes: rows of one element, or whole rows, are its channels.
    """
    rows = x.shape[:-1] if scale.shape[-1:] == (1,) else x.shape
    each = (np.broadcast_to(values[..., 0] if rows != x.shape else values, rows) for values in (scale, zero_point))
    channels = QParams(spec.replace(granularity=PerChannel(0)), *(values.ravel() for values in each))
    return fake_quantize(x.reshape(len(channels.scale), -1), channels).reshape(x.shape)


def round_column(x: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, spec: QuantSpec) -> np.ndarray:
    """`round_to_grid` of one value for each scale, without its checks: matrices are rounded column by column."""
    if not spec.evenly_spaced or spec.format.bias_only:
        return round_to_grid(x, scale, zero_point, spec)
    return spec.format.fake(x.astype(np.float32, copy=False), scale, zero_point, spec)
