"""Values in a row along an axis that have something in common: how arrays are split into such blocks and put together.

The same three times: for numpy, for torch, and as operators of ONNX for tensors whose sizes may be open. The last block
may be shorter; zeros fill it up, which no largest magnitude notices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxq.errors import UnsupportedError
from onnxq.numerics.chunks import CHUNK_ELEMENTS, chunks
from onnxq.types.granularity import PerBlock, resolve_axis
from onnxq.types.number_format import Operators
from onnxq.types.spec import QuantSpec

if TYPE_CHECKING:
    from torch import Tensor


def blocks_of(spec: QuantSpec) -> PerBlock:
    """The blocks whose values share an exponent or a scale."""
    assert isinstance(spec.granularity, PerBlock)
    return spec.granularity


def block_axis(blocks: PerBlock, rank: int) -> int:
    """The axis along which a tensor of this rank has its blocks: with a single one there is no choice."""
    return 0 if rank < 2 else resolve_axis(blocks.axis, rank)


def block_chunks(shape: Sequence[int], blocks: PerBlock) -> Iterator[tuple[slice, ...]]:
    """Indices that cover an array once in pieces of bounded size, none of which divides a block."""
    if not shape:
        yield from chunks(shape)
        return
    axis, size = block_axis(blocks, len(shape)), blocks.size
    counted = tuple(-(-dim // size) if i == axis else dim for i, dim in enumerate(shape))
    for index in chunks(counted, max(1, CHUNK_ELEMENTS // size)):
        along = slice(index[axis].start * size, min(index[axis].stop * size, shape[axis]))
        yield (*index[:axis], along, *index[axis + 1 :])


def in_blocks(x: np.ndarray, blocks: PerBlock) -> np.ndarray:
    """The array with its blocks as the last axis, filled up with zeros."""
    last = np.moveaxis(np.atleast_1d(x), block_axis(blocks, x.ndim), -1)
    missing = -last.shape[-1] % blocks.size
    if missing:
        last = np.pad(last, [*((0, 0),) * (last.ndim - 1), (0, missing)])
    return last.reshape(*last.shape[:-1], -1, blocks.size)


def from_blocks(split: np.ndarray, shape: tuple[int, ...], blocks: PerBlock) -> np.ndarray:
    """The inverse of `in_blocks`: the array of this shape."""
    if not shape:
        return np.asarray(split.reshape(-1)[0])
    axis = block_axis(blocks, len(shape))
    last = split.reshape(*split.shape[:-2], -1)[..., : shape[axis]]
    return np.moveaxis(last, -1, axis)


def torch_blocks(x: Tensor, blocks: PerBlock) -> Tensor:
    """A torch tensor with an axis of its own for the members of blocks, behind that of the blocks."""
    import torch

    axis = block_axis(blocks, x.ndim)
    flat = x if x.ndim else x.reshape(1)
    filled = torch.nn.functional.pad(flat, [*[0, 0] * (flat.ndim - 1 - axis), 0, -flat.shape[axis] % blocks.size])
    before, after = flat.shape[:axis], flat.shape[axis + 1 :]
    return filled.reshape(*before, filled.shape[axis] // blocks.size, blocks.size, *after)


def torch_joined(split: Tensor, like: Tensor, blocks: PerBlock) -> Tensor:
    """The inverse of `torch_blocks`, in the shape of `like`."""
    axis = block_axis(blocks, like.ndim)
    length = like.shape[axis] if like.ndim else 1
    return split.flatten(axis, axis + 1).narrow(axis, 0, length).reshape(like.shape)


_DOUBLE, _INT64, _BOOL = np.dtype(np.float64), np.dtype(np.int64), np.dtype(bool)
_OPSET_OF_AXES_INPUT = 18
"""From here on ReduceMax reads its axes from an input."""


class BlockOperators:
    """Operators that take the blocks of one tensor apart and put them together; its sizes may be open.

    Pad, Reshape          the blocks become an axis of their own, filled up with zeros
    ReduceMax of |x|      over finite values only
    Reshape, Slice        back to the tensor's own shape
    """

    def __init__(self, ops: Operators, blocks: PerBlock) -> None:
        source = ops.source
        if source.shape is None:
            raise UnsupportedError(
                f"tensor '{source.name}' has an unknown rank, so that nobody can tell which of its values share an "
                "exponent. Run shape inference on the model, or give the tensor another dtype"
            )
        self._to = ops
        self._sizes = [size if isinstance(size, int) else None for size in source.shape] or [1]
        self._rank = len(source.shape)
        self._axis = block_axis(blocks, self._rank)
        self._length = self._sizes[self._axis]
        # A short axis is one block of its own length, which needs no filling up.
        self._width = blocks.size if self._length is None else max(1, min(blocks.size, self._length))

    def magnitudes(self, split: Any) -> tuple[Any, Any]:
        """Which of the values are finite, and the largest magnitude of those in each block."""
        to = self._to
        size = to.add("Abs", [split], shaped=False)
        top = to.constant("largest", np.finfo(np.float32).max)
        finite = to.add("LessOrEqual", [size, top], _BOOL, shaped=False)  # False for NaN and infinities
        zero = to.constant("zero", np.float32(0.0))
        return finite, self._largest(to.add("Where", [finite, size, zero], size.dtype, shaped=False))

    def _largest(self, size: Any) -> Any:
        inside = self._axis + 1
        if self._to.opset < _OPSET_OF_AXES_INPUT:
            return self._to.add("ReduceMax", [size], attrs={"axes": [inside], "keepdims": 1}, shaped=False)
        axes = self._to.constant("axes", np.array([inside], np.int64))
        return self._to.add("ReduceMax", [size, axes], attrs={"keepdims": 1}, shaped=False)

    # ---- shapes ---------------------------------------------------------------------------------------------------

    @property
    def _missing(self) -> int | None:
        """How many zeros fill the last block; None if only the run can tell."""
        return None if self._length is None else -self._length % self._width

    def split(self, x: Any) -> Any:
        """The values with an axis for the members of a block, behind that of the blocks."""
        if self._missing != 0:
            ahead = np.zeros(self._rank + self._axis, np.int64)
            behind = np.zeros(self._rank - self._axis - 1, np.int64)
            filling = self._open_missing if self._missing is None else np.array([self._missing], np.int64)
            x = self._to.add("Pad", [x, self._sizes_of(ahead, filling, behind)], shaped=False)
        if self._length is None:
            count = self._integers("Div", self._open_whole, np.int64(self._width))
        else:
            count = np.array([-(-self._length // self._width)], np.int64)
        return self._reshape(x, count, np.array([self._width], np.int64))

    def join(self, split: Any) -> Any:
        """The inverse of `split`, in the shape of the source."""
        if self._missing == 0:
            return self._reshape(split, np.array([self._length], np.int64), shaped=True)
        if self._missing is None:
            whole, length = self._open_whole, self._open_length
        else:
            assert self._length is not None
            whole = np.array([self._length + self._missing], np.int64)
            length = np.array([self._length], np.int64)
        joined = self._reshape(split, whole)
        start = self._to.constant("start", np.zeros(1, np.int64))
        axes = self._to.constant("axes", np.array([self._axis], np.int64))
        return self._to.add("Slice", [joined, start, self._sizes_of(length), axes])

    def _reshape(self, x: Any, *along: Any, shaped: bool = False) -> Any:
        """`x` with other sizes along the axis; those before it are copied (0), those behind it are told."""
        if not self._rank and len(along) == 1:
            sizes = self._to.constant("sizes", np.zeros(0, np.int64))
            return self._to.add("Reshape", [x, sizes], shaped=shaped)
        behind: Any = self._sizes[self._axis + 1 :]
        if None in behind:
            first, last = np.array([self._axis + 1], np.int64), np.array([self._rank], np.int64)
            behind = self._part_of_shape(first, last)
        else:
            behind = np.array(behind, np.int64)
        sizes = self._sizes_of(np.zeros(self._axis, np.int64), *along, behind)
        return self._to.add("Reshape", [x, sizes], shaped=shaped)

    def _sizes_of(self, *parts: Any) -> Any:
        """Numbers known now and numbers of the run, one after the other, as one tensor."""
        if all(isinstance(part, np.ndarray) for part in parts):
            return self._to.constant("sizes", np.concatenate(parts))
        held = [part for part in parts if not isinstance(part, np.ndarray) or part.size]
        tensors = [self._to.constant("sizes", part) if isinstance(part, np.ndarray) else part for part in held]
        return tensors[0] if len(tensors) == 1 else self._to.add("Concat", tensors, _INT64, {"axis": 0}, shaped=False)

    @cached_property
    def _open_sizes(self) -> Any:
        return self._to.add("Shape", [self._to.source], _INT64, shaped=False)

    @cached_property
    def _open_length(self) -> Any:
        return self._part_of_shape(np.array([self._axis], np.int64), np.array([self._axis + 1], np.int64))

    @cached_property
    def _open_missing(self) -> Any:
        length = self._to.add("Neg", [self._open_length], shaped=False)
        return self._integers("Mod", length, np.int64(self._width))  # Mod has the sign of the divisor

    @cached_property
    def _open_whole(self) -> Any:
        return self._to.add("Add", [self._open_length, self._open_missing], shaped=False)

    def _integers(self, op: str, one: Any, other: np.int64) -> Any:
        return self._to.add(op, [one, self._to.constant("width", other)], shaped=False)

    def _part_of_shape(self, first: np.ndarray, last: np.ndarray) -> Any:
        bounds = [self._to.constant("part", edge) for edge in (first, last)]
        return self._to.add("Slice", [self._open_sizes, *bounds], shaped=False)


def power_below(to: Operators, largest: Any) -> Any:
    """Half the largest power of two that is not above each value of `largest` (float32), in float64; 0 for 0.

        power = q - (1 - 2^-53) * q  with  q = (2^52 + 1) * largest

    (Rump, Ogita and Oishi, "Accurate floating-point summation"): exact for every float32 number, because float64
    neither overflows nor underflows there. A logarithm would not be, next to powers of two.
    """
    wide = to.add("Cast", [largest], _DOUBLE, {"to": _DOUBLE}, shaped=False)
    # Halves on both sides: onnxruntime's optimizer takes a factor of 1 - 2^-53 for 1 and drops it.
    scaled = to.add("Mul", [wide, to.constant("up", np.float64(2.0**52 + 1))], shaped=False)
    half = to.add("Mul", [scaled, to.constant("half", np.float64(0.5))], shaped=False)
    below = to.add("Mul", [scaled, to.constant("below", np.float64(0.5 - 2.0**-54))], shaped=False)
    return to.add("Sub", [half, below], shaped=False)


def narrowed(to: Operators, wide: Any) -> Any:
    """float64 values that float32 holds, as such."""
    narrow = np.dtype(np.float32)
    return to.add("Cast", [wide], narrow, {"to": narrow}, shaped=False)
