"""Ranges of constants (weights): the same observers on an array that is all there at once."""

from __future__ import annotations

import numpy as np

from onnxq.errors import UnsupportedError
from onnxq.numerics import let_go, row_pieces
from onnxq.numerics.compiled import block_ranges_in_c
from onnxq.numerics.ranges import qparams_from_range
from onnxq.observers.base import Observer, qparams
from onnxq.observers.statistics import RangeStatistic
from onnxq.observers.statistics.scan import as_float32, pieces
from onnxq.types.granularity import PerBlock, PerChannel, resolve_axis
from onnxq.types.qparams import QParams
from onnxq.types.spec import QuantSpec


def observe_constant(values: np.ndarray, observer: Observer, spec: QuantSpec, *, tensor: str = "") -> QParams:
    """Scale and zero point of a constant, per tensor, per channel, or per block.

    Blocks are for observers that need no more than minimum and maximum, such as minmax.

    Memory stays bounded for an array of any size, a np.memmap included.
    """
    granularity = spec.scale_granularity
    if isinstance(granularity, PerBlock):
        if observer.statistic != "range":
            where = f" (tensor '{tensor}')" if tensor else ""
            raise UnsupportedError(
                f"observer '{observer.name}' cannot work per block{where}: a block has too few values, use minmax"
            )
        found = _by_rows(values, granularity, observer, spec, tensor)
        if found is not None:
            return found
        low, high = _block_ranges(values, granularity, tensor)
        lows, highs = observer.range(_rows_of(low, high), spec, tensor=tensor)
        return qparams_from_range(lows.reshape(low.shape), highs.reshape(low.shape), spec)
    axis = granularity.axis if isinstance(granularity, PerChannel) else None
    statistic = observer.new_statistic(axis, spec)
    statistic.update(values)
    return qparams(observer, statistic, spec, tensor=tensor)


def _rows_of(low: np.ndarray, high: np.ndarray) -> RangeStatistic:
    """Blocks as the rows of a statistic, which is what observers read."""
    blocks = RangeStatistic(axis=0)
    blocks.minimum, blocks.maximum = low.ravel(), high.ravel()
    blocks.count = np.ones(low.size, np.int64)
    return blocks


def _block_ranges(values: np.ndarray, blocks: PerBlock, tensor: str) -> tuple[np.ndarray, np.ndarray]:
    """Minimum and maximum of every block, in the shape of the scale."""
    axis = resolve_axis(blocks.axis, values.ndim)
    low = np.full(blocks.scale_shape(values.shape), np.inf, np.float32)
    high = np.full(blocks.scale_shape(values.shape), -np.inf, np.float32)
    # Whole blocks and the shorter last one are two reshapes, each reduced without a loop over blocks.
    whole = values.shape[axis] // blocks.size * blocks.size
    for start, stop, size in ((0, whole, blocks.size), (whole, values.shape[axis], values.shape[axis] - whole)):
        if start == stop:
            continue
        part = values[(*(slice(None),) * axis, slice(start, stop))]
        split = part.reshape(*part.shape[:axis], (stop - start) // size, size, *part.shape[axis + 1 :])
        first = start // blocks.size
        target = (*(slice(None),) * axis, slice(first, first + split.shape[axis]))
        _reduce_into(split, axis + 1, low[target], high[target])
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        seen = RangeStatistic()
        seen.update(values)
        seen.check(tensor)
        bad = np.argwhere(~(np.isfinite(low) & np.isfinite(high)))[0]
        raise UnsupportedError(
            f"block {tuple(int(i) for i in bad)}{f' of tensor {tensor!r}' if tensor else ''} holds NaN or infinity "
            f"({seen.nonfinite} such values in all): a weight must be finite to be quantized per block"
        )
    return low, high


def _by_rows(values: np.ndarray, blocks: PerBlock, observer: Observer, spec: QuantSpec, tensor: str) -> QParams | None:
    """The same some rows at a time, where C computes the ranges, and scales do not depend on each other."""
    if not spec.evenly_spaced or not values.size:
        return None
    shape = blocks.scale_shape(values.shape)
    scale, zero_point = np.empty(shape, np.float32), np.zeros(shape, np.int32)
    for rows, cells in row_pieces(values.shape, blocks):
        low, high = np.empty(scale[cells].shape, np.float32), np.empty(scale[cells].shape, np.float32)
        if not block_ranges_in_c(values[rows], blocks, low, high):
            return None
        lows, highs = observer.range(_rows_of(low, high), spec, tensor=tensor)
        found = qparams_from_range(lows.reshape(low.shape), highs.reshape(low.shape), spec)
        scale[cells], zero_point[cells] = found.scale, found.zero_point
        let_go(values)
    return QParams(spec, scale, zero_point)


def _reduce_into(split: np.ndarray, axis: int, low: np.ndarray, high: np.ndarray) -> None:
    """Minimum and maximum over `axis`, which is read in pieces and combined into `low` and `high`."""
    for index in pieces(split.shape):
        piece = as_float32(split[index])
        kept = index[:axis] + index[axis + 1 :]
        with np.errstate(invalid="ignore"):
            low[kept] = np.minimum(low[kept], piece.min(axis=axis))
            high[kept] = np.maximum(high[kept], piece.max(axis=axis))
