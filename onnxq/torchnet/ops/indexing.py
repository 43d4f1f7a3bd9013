"""Operators that read and write values at given places: Slice, Gather and Scatter in all their forms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from onnxq.torchnet.call import Call
from onnxq.torchnet.ops.widen import wide_tensor, widened
from onnxq.torchnet.registry import Kernel, op
from onnxq.torchnet.values import Value

# ---- Slice -----------------------------------------------------------------------------------------------------------


def _sliced(x: Tensor, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int], steps: Sequence[int]) -> Tensor:
    """A part of `x`; torch takes no negative steps, so the axes that have one are turned round afterwards."""
    chosen = [slice(None)] * x.ndim
    turned = []
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step < 0:
            places = range(x.shape[axis])[start:end:step]
            turned.append(axis)
            start, end, step = (places[-1], places[0] + 1, -step) if places else (0, 0, 1)
        chosen[axis] = slice(start, end, step)
    part = x[tuple(chosen)]
    return part.flip(turned) if turned else part


@op("Slice", since=1)
def slice_attributes(call: Call) -> Kernel:
    starts, ends = call.attribute("starts"), call.attribute("ends")
    axes = call.attribute("axes", None) or range(len(starts))
    steps = [1] * len(starts)
    return widened(call, lambda x: _sliced(x, starts, ends, axes, steps))


@op("Slice", since=10)
def slice_inputs(call: Call) -> Kernel:
    starts_of, ends_of, axes_of, steps_of = (call.ints(port) for port in (1, 2, 3, 4))

    def run(x: Tensor, start: Value, end: Value, along: Value = None, step: Value = None) -> Tensor:
        starts = starts_of(start)
        axes: Sequence[int] = range(len(starts)) if along is None else axes_of(along)
        return _sliced(x, starts, ends_of(end), axes, [1] * len(starts) if step is None else steps_of(step))

    return widened(call, run)


# ---- Gather ----------------------------------------------------------------------------------------------------------


def _from_front(indices: Tensor, size: int) -> Tensor:
    """int64 indices that count from the front; negative ones count from the end."""
    indices = indices.long()
    return torch.where(indices < 0, indices + size, indices)


@op("Gather", since=1)
def gather(call: Call) -> Kernel:
    axis = call.attribute("axis", 0)
    known = call.constant(1)
    if known is not None and known.ndim == 0:
        place = int(known)
        return widened(call, lambda x, indices: x.select(axis, place))
    is_front = known is not None and bool((known >= 0).all())

    def run(x: Tensor, indices: Tensor) -> Tensor:
        places = indices if is_front else _from_front(indices, x.shape[axis])
        if places.ndim == 1:
            return x.index_select(axis, places)
        before, after = x.shape[: axis % x.ndim], x.shape[axis % x.ndim + 1 :]
        return x.index_select(axis, places.reshape(-1)).reshape((*before, *places.shape, *after))

    return widened(call, run)


@op("GatherElements", since=11)
def gather_elements(call: Call) -> Kernel:
    axis = call.attribute("axis", 0)
    return widened(call, lambda x, indices: x.gather(axis, _from_front(indices, x.shape[axis])))


@op("GatherND", since=11)
def gather_nd(call: Call) -> Kernel:
    """Values, or whole slices, at the coordinates in the last axis of `indices`; leading axes may be common to both."""
    batch_axes = call.attribute("batch_dims", 0)

    def run(x: Tensor, indices: Tensor) -> Tensor:
        depth = indices.shape[-1]
        common, rest = x.shape[:batch_axes], x.shape[batch_axes + depth :]
        batches = math.prod(common)
        rows = torch.arange(batches, device=x.device).unsqueeze(1)
        wanted = indices.long().reshape(batches, math.prod(indices.shape[batch_axes:-1]), depth)
        found = x.reshape(batches, *x.shape[batch_axes:])[(rows, *wanted.unbind(-1))]
        return found.reshape((*common, *indices.shape[batch_axes:-1], *rest))

    return widened(call, run)


# ---- Scatter ---------------------------------------------------------------------------------------------------------

_REDUCED_BY = {"none": "", "add": "sum", "mul": "prod", "max": "amax", "min": "amin"}
"""ONNX's names of the ways to join an update with the value that is there, and torch's."""


def _reduction(call: Call) -> str:
    wanted = call.attribute("reduction", "none")
    if wanted not in _REDUCED_BY:
        raise call.unsupported(f"reduction '{wanted}' is not one of {', '.join(_REDUCED_BY)}")
    return _REDUCED_BY[wanted]


def _scattered(x: Tensor, axis: int, places: Tensor, updates: Tensor, reduction: str) -> Tensor:
    if not reduction:
        return x.scatter(axis, places, updates)
    if reduction == "sum":
        return x.scatter_add(axis, places, updates)
    return x.scatter_reduce(axis, places, updates, reduction)


@op("Scatter", since=9)
@op("ScatterElements", since=11)
def scatter_elements(call: Call) -> Kernel:
    axis, reduction = call.attribute("axis", 0), _reduction(call)

    def run(x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
        return _scattered(x, axis, _from_front(indices, x.shape[axis]), updates, reduction)

    return widened(call, run, ordered=reduction in ("amax", "amin"))


@op("ScatterND", since=11)
def scatter_nd(call: Call) -> Kernel:
    """Slices at the coordinates in the last axis of `indices` become updates; done on rows of a flat view."""
    reduction = _reduction(call)

    def run(x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
        depth = indices.shape[-1]
        width = math.prod(x.shape[depth:])
        rows = torch.zeros(indices.shape[:-1], dtype=torch.int64, device=indices.device)
        for size, coordinate in zip(x.shape, indices.unbind(-1), strict=False):
            rows = rows * size + _from_front(coordinate, size)
        places = rows.reshape(-1, 1).expand(-1, width)
        flat = x.reshape(math.prod(x.shape[:depth]), width)
        return _scattered(flat, 0, places, updates.reshape(places.shape), reduction).reshape(x.shape)

    return widened(call, run, ordered=reduction in ("amax", "amin"))


@op("TensorScatter", since=24)
def tensor_scatter(call: Call) -> Kernel:
    """New rows of a cache, written from a place of its own in each sample; `circular` goes on at the front."""
    axis, circular = call.attribute("axis", -2), call.attribute("mode", "linear") == "circular"

    def run(cache: Tensor, update: Tensor, firsts: Tensor | None = None) -> Tensor:
        along = axis % cache.ndim
        shape = [1] * cache.ndim
        shape[along] = update.shape[along]
        places = torch.arange(update.shape[along], device=cache.device).reshape(shape)
        if firsts is not None:
            places = places + firsts.long().reshape(-1, *[1] * (cache.ndim - 1))
        if circular:
            places = places.remainder(cache.shape[along])
        return cache.scatter(along, places.expand(update.shape), update)

    return widened(call, run)


# ---- choosing and marking --------------------------------------------------------------------------------------------


@op("Compress", since=9)
def compress(call: Call) -> Kernel:
    axis = call.attribute("axis", None)

    def run(x: Tensor, condition: Tensor) -> Tensor:
        places = condition.nonzero().reshape(-1)
        return x.reshape(-1).index_select(0, places) if axis is None else x.index_select(axis, places)

    return widened(call, run)


@op("OneHot", since=9)
def one_hot(call: Call) -> Kernel:
    """`on` where the new axis has the number that is in `indices`, else `off`; since 11, -1 is the last of them."""
    axis, counts_back = call.attribute("axis", -1), call.version >= 11
    known = call.constant(1)
    depth_of: Callable[[Value], int] = lambda value: int(wide_tensor(value).reshape(-1)[0])  # noqa: E731
    if known is not None:
        fixed = int(known.reshape(-1)[0])
        depth_of = lambda value: fixed  # noqa: E731
    selected = widened(call, lambda mask, values: torch.where(mask, values[1], values[0]))

    def run(indices: Value, depth: Value, values: Value) -> Value:
        count = depth_of(depth)
        places = wide_tensor(indices).long()
        if counts_back:
            places = _from_front(places, count)
        shape = [1] * (places.ndim + 1)
        shape[axis] = count
        return selected(places.unsqueeze(axis) == torch.arange(count, device=places.device).reshape(shape), values)

    return run


@op("ReverseSequence", since=10)
def reverse_sequence(call: Call) -> Kernel:
    time_axis, batch_axis = call.attribute("time_axis", 0), call.attribute("batch_axis", 1)

    def run(x: Tensor, lengths: Tensor) -> Tensor:
        times, batches = [1] * x.ndim, [1] * x.ndim
        times[time_axis], batches[batch_axis] = -1, -1
        time = torch.arange(x.shape[time_axis], device=x.device).reshape(times)
        length = lengths.long().reshape(batches)
        return x.gather(time_axis, torch.where(time < length, length - 1 - time, time).expand(x.shape))

    return widened(call, run)


@op("Trilu", since=14)
def trilu(call: Call) -> Kernel:
    keep = torch.triu if call.attribute("upper", 1) else torch.tril
    diagonal_of = call.ints(1)

    def run(x: Tensor, diagonal: Value = None) -> Tensor:
        return keep(x, 0 if diagonal is None else diagonal_of(diagonal)[0])

    return widened(call, run)
