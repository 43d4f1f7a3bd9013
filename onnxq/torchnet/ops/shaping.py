"""Operators that give values another shape or order: Reshape, Transpose, Concat, Split and their kin."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from onnxq.errors import ModelError
from onnxq.torchnet.call import Call
from onnxq.torchnet.ops.widen import widened
from onnxq.torchnet.registry import Kernel, op
from onnxq.torchnet.values import Value, as_ints, device_of

# ---- shapes ----------------------------------------------------------------------------------------------------------


@op("Identity", since=1)
def identity(call: Call) -> Kernel:
    return lambda value: value


@op("Shape", since=1)
def shape_of(call: Call) -> Kernel:
    start, end = call.attribute("start", 0), call.attribute("end", None)
    return lambda value: torch.tensor(tuple(value.shape)[start:end], dtype=torch.int64, device=device_of(value))


@op("Size", since=1)
def size_of(call: Call) -> Kernel:
    return lambda value: torch.tensor(math.prod(value.shape), dtype=torch.int64, device=device_of(value))


def _reshape(call: Call, shape: Callable[[Value], Sequence[int]], copies: bool) -> Kernel:
    """`copies`: a 0 in the shape stands for the size that the input has there."""

    def run(x: Tensor, wanted: Value = None) -> Tensor:
        sizes = shape(wanted)
        if copies and 0 in sizes:
            sizes = [x.shape[axis] if size == 0 else size for axis, size in enumerate(sizes)]
        return x.reshape(tuple(sizes))

    return widened(call, run)


@op("Reshape", since=1)
def reshape_to_attribute(call: Call) -> Kernel:
    shape = tuple(call.attribute("shape"))
    return _reshape(call, lambda value: shape, copies=0 in shape)


@op("Reshape", since=5)
def reshape(call: Call) -> Kernel:
    known = call.constant_ints(1)
    copies = not call.attribute("allowzero", 0) and (known is None or 0 in known)
    return _reshape(call, call.ints(1), copies)


@op("Flatten", since=1)
def flatten(call: Call) -> Kernel:
    axis = call.attribute("axis", 1)

    def run(x: Tensor) -> Tensor:
        return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))

    return widened(call, run)


# ---- axes ------------------------------------------------------------------------------------------------------------


def _squeeze(call: Call, axes_of: Callable[[Value], Sequence[int]] | None) -> Kernel:
    def run_all(x: Tensor) -> Tensor:
        return x.squeeze()

    def run(x: Tensor, given: Value = None) -> Tensor:
        assert axes_of is not None
        axes = tuple(axes_of(given))
        for axis in axes:
            if x.shape[axis] != 1:
                raise ModelError(f"{call} removes axis {axis} of shape {tuple(x.shape)}; its size must be 1")
        return x.squeeze(axes) if axes else x

    return widened(call, run_all if axes_of is None else run)


@op("Squeeze", since=1)
def squeeze_attribute(call: Call) -> Kernel:
    axes = call.attribute("axes", None)
    return _squeeze(call, None if axes is None else lambda value: axes)


@op("Squeeze", since=13)
def squeeze(call: Call) -> Kernel:
    return _squeeze(call, call.ints(1) if call.has_input(1) else None)


def _unsqueeze(call: Call, axes_of: Callable[[Value], Sequence[int]]) -> Kernel:
    def run(x: Tensor, given: Value = None) -> Tensor:
        axes = axes_of(given)
        if len(axes) == 1:
            return x.unsqueeze(axes[0])
        rank = x.ndim + len(axes)
        for axis in sorted(axis % rank for axis in axes):
            x = x.unsqueeze(axis)
        return x

    return widened(call, run)


@op("Unsqueeze", since=1)
def unsqueeze_attribute(call: Call) -> Kernel:
    axes = call.attribute("axes")
    return _unsqueeze(call, lambda value: axes)


@op("Unsqueeze", since=13)
def unsqueeze(call: Call) -> Kernel:
    return _unsqueeze(call, call.ints(1))


@op("Transpose", since=1)
def transpose(call: Call) -> Kernel:
    order = call.attribute("perm", None)
    if order is None:
        return widened(call, lambda x: x.permute(tuple(reversed(range(x.ndim)))))
    order = tuple(order)
    return widened(call, lambda x: x.permute(order))


# ---- repeating -------------------------------------------------------------------------------------------------------


@op("Expand", since=8)
def expand(call: Call) -> Kernel:
    shape_of_input = call.ints(1)

    def run(x: Tensor, shape: Value) -> Tensor:
        wanted = shape_of_input(shape)
        wanted = [1] * (x.ndim - len(wanted)) + wanted
        own = [1] * (len(wanted) - x.ndim) + list(x.shape)
        return x.expand([mine if size == 1 else size for mine, size in zip(own, wanted, strict=True)])

    return widened(call, run)


@op("Tile", since=1)
def tile_one_axis(call: Call) -> Kernel:
    count_of, axis_of = call.ints(1), call.ints(2)

    def run(x: Tensor, tiles: Value, axis: Value) -> Tensor:
        repeats = [1] * x.ndim
        repeats[axis_of(axis)[0]] = count_of(tiles)[0]
        return x.repeat(repeats)

    return widened(call, run)


@op("Tile", since=6)
def tile(call: Call) -> Kernel:
    repeats_of = call.ints(1)
    return widened(call, lambda x, repeats: x.tile(tuple(repeats_of(repeats))))


# ---- blocks ----------------------------------------------------------------------------------------------------------


def _block_mode(call: Call) -> str:
    mode: str = call.attribute("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        raise call.unsupported(f"mode '{mode}' is not one of DCR, CRD")
    return mode


@op("DepthToSpace", since=1)
def depth_to_space(call: Call) -> Kernel:
    """DCR: channels are (row in block, column in block, depth); CRD: (depth, row in block, column in block)."""
    block, mode = call.attribute("blocksize"), _block_mode(call)

    def run(x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        depth = c // (block * block)
        if mode == "DCR":
            parts = x.reshape(n, block, block, depth, h, w).permute(0, 3, 4, 1, 5, 2)
        else:
            parts = x.reshape(n, depth, block, block, h, w).permute(0, 1, 4, 2, 5, 3)
        return parts.reshape(n, depth, h * block, w * block)

    return widened(call, run)


@op("SpaceToDepth", since=1)
def space_to_depth(call: Call) -> Kernel:
    block, mode = call.attribute("blocksize"), _block_mode(call)
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)

    def run(x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        parts = x.reshape(n, c, h // block, block, w // block, block)
        return parts.permute(order).reshape(n, c * block * block, h // block, w // block)

    return widened(call, run)


# ---- joining and parting ---------------------------------------------------------------------------------------------


def joined(parts: Sequence[Value], axis: int, *, new_axis: bool) -> Value:
    """Values of one type behind each other, along an axis that they have or along a new one."""
    if isinstance(parts[0], np.ndarray):
        return np.stack(parts, axis) if new_axis else np.concatenate(parts, axis)
    return torch.stack(tuple(parts), axis) if new_axis else torch.cat(tuple(parts), axis)


@op("Concat", since=1)
def concat(call: Call) -> Kernel:
    axis = call.attribute("axis", 1) if call.version < 4 else call.attribute("axis")
    return widened(call, lambda *parts: torch.cat(parts, axis))


def _equal_parts(size: int, count: int) -> list[int]:
    """Sizes of `count` parts; the last is smaller where they cannot be equal."""
    each = -(-size // count)
    return [max(0, min(each, size - each * number)) for number in range(count)]


def _split(call: Call, sizes_of: Callable[[Value], Sequence[int]] | None, count: int) -> Kernel:
    axis = call.attribute("axis", 0)

    def run(x: Tensor, given: Value = None) -> tuple[Tensor, ...]:
        sizes = _equal_parts(x.shape[axis], count) if sizes_of is None else list(sizes_of(given))
        return x.split_with_sizes(sizes, axis)

    return widened(call, run)


@op("Split", since=1)
def split_attribute_or_input(call: Call) -> Kernel:
    if call.has_input(1):
        return _split(call, call.ints(1), len(call.outputs))
    return split_attribute(call)


@op("Split", since=2)
def split_attribute(call: Call) -> Kernel:
    sizes = call.attribute("split", None)
    return _split(call, (lambda value: sizes) if sizes else None, len(call.outputs))


@op("Split", since=13)
def split(call: Call) -> Kernel:
    count = call.attribute("num_outputs", len(call.outputs))
    return _split(call, call.ints(1) if call.has_input(1) else None, count)


@op("ConcatFromSequence", since=11)
def concat_from_sequence(call: Call) -> Kernel:
    axis, is_new = call.attribute("axis"), bool(call.attribute("new_axis", 0))
    return lambda parts: joined(parts, axis, new_axis=is_new)


@op("SplitToSequence", since=11)
def split_to_sequence(call: Call) -> Kernel:
    """Parts of one row each, of a given size (a scalar), or of given sizes."""
    axis = call.attribute("axis", 0)
    drops_axis = not call.has_input(1) and not call.attribute("keepdims", 1)

    def run(x: Tensor, sizes: Value = None) -> tuple[Tensor, ...]:
        if drops_axis:
            return x.unbind(axis)
        given = [1] if sizes is None else as_ints(sizes)
        if sizes is None or sizes.ndim == 0:
            whole, rest = divmod(x.shape[axis], given[0])
            given = given * whole + [rest] * (rest > 0)
        return x.split_with_sizes(given, axis)

    parts = widened(call, run)
    return lambda *inputs: list(parts(*inputs))
