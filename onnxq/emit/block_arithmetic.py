"""bfp16 as float ONNX operators: `onnxq.numerics.bfp`, bit for bit, on a tensor whose sizes may be open.

    Pad, Reshape          the blocks become an axis of their own, filled up with zeros
    ReduceMax of |x|      over finite values only
    power = q - (1 - 2^-53) * q  with  q = (2^52 + 1) * max |x|                           in float64
    Div, Clip, Round      x / step with step = max(power, 2^-127) * 2^-6, which is float32 again
    Mul, Reshape, Slice   back to the tensor's own shape

The third line is the largest power of two that is not above max |x| (Rump, Ogita and Oishi, "Accurate floating-point
summation"): exact for every float32 number, because float64 neither overflows nor underflows there. A logarithm would
not be, next to powers of two.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from onnxq.emit.arithmetic import Arithmetic
from onnxq.errors import UnsupportedError
from onnxq.graph import Graph
from onnxq.numerics.bfp import LARGEST_MANTISSA, LOWEST_EXPONENT, MANTISSA_BITS, block_axis
from onnxq.types import PerBlock

_DOUBLE, _INT64, _BOOL = np.dtype(np.float64), np.dtype(np.int64), np.dtype(bool)
_OPSET_OF_AXES_INPUT = 18
"""From here on ReduceMax reads its axes from an input."""


class BlockArithmetic:
    """Adds the operators for one tensor, in the scope that makes it."""

    def __init__(self, graph: Graph, source: Any, blocks: PerBlock) -> None:
        if source.shape is None:
            raise UnsupportedError(
                f"tensor '{source.name}' has an unknown rank, so that nobody can tell which of its values share an "
                "exponent. Run shape inference on the model, or give the tensor another dtype"
            )
        self._to = Arithmetic(graph, source)
        self._sizes = [size if isinstance(size, int) else None for size in source.shape] or [1]
        self._rank = len(source.shape)
        self._axis = block_axis(blocks, self._rank)
        self._length = self._sizes[self._axis]
        # A short axis is one block of its own length, which needs no filling up.
        self._width = blocks.size if self._length is None else max(1, min(blocks.size, self._length))

    def write(self) -> Any:
        """The tensor that holds the values of bfp16, of the type of the source."""
        to = self._to
        x = to.cast(to.source, np.dtype(np.float32))
        split = self._split(x)
        size = to.add("Abs", [split], shaped=False)
        top = to.constant("largest", np.finfo(np.float32).max)
        finite = to.add("LessOrEqual", [size, top], _BOOL, shaped=False)  # False for NaN and infinities
        zero = to.constant("zero", np.float32(0.0))
        largest = self._largest(to.add("Where", [finite, size, zero], size.dtype, shaped=False))
        step = self._step(largest)
        steps = to.add("Div", [split, step], shaped=False)
        bounds = [
            to.constant(side, np.float32(v)) for side, v in (("low", -LARGEST_MANTISSA), ("high", LARGEST_MANTISSA))
        ]
        rounded = to.add("Round", [to.add("Clip", [steps, *bounds], shaped=False)], shaped=False)
        # Adding zero turns -0 into +0: a zero has no sign.
        values = to.add("Mul", [to.add("Add", [rounded, zero], shaped=False), step], shaped=False)
        kept = to.add("Where", [finite, values, split], values.dtype, shaped=False)
        return to.cast(self._join(kept), to.kind)

    def _largest(self, size: Any) -> Any:
        inside = self._axis + 1
        if self._to.graph.opset < _OPSET_OF_AXES_INPUT:
            return self._to.add("ReduceMax", [size], attrs={"axes": [inside], "keepdims": 1}, shaped=False)
        axes = self._to.constant("axes", np.array([inside], np.int64))
        return self._to.add("ReduceMax", [size, axes], attrs={"keepdims": 1}, shaped=False)

    def _step(self, largest: Any) -> Any:
        to = self._to
        wide = to.add("Cast", [largest], _DOUBLE, {"to": _DOUBLE}, shaped=False)
        # Halves on both sides: onnxruntime's optimizer takes a factor of 1 - 2^-53 for 1 and drops it.
        scaled = to.add("Mul", [wide, to.constant("up", np.float64(2.0**52 + 1))], shaped=False)
        half = to.add("Mul", [scaled, to.constant("half", np.float64(0.5))], shaped=False)
        below = to.add("Mul", [scaled, to.constant("below", np.float64(0.5 - 2.0**-54))], shaped=False)
        half_power = to.add("Sub", [half, below], shaped=False)
        lowest = to.constant("lowest", np.float64(2.0 ** (LOWEST_EXPONENT - 1)))
        half_power = to.add("Max", [half_power, lowest], shaped=False)
        step = to.add("Mul", [half_power, to.constant("bits", np.float64(2.0 ** (2 - MANTISSA_BITS)))], shaped=False)
        narrow = np.dtype(np.float32)
        return to.add("Cast", [step], narrow, {"to": narrow}, shaped=False)

    # ---- shapes ---------------------------------------------------------------------------------------------------

    @property
    def _missing(self) -> int | None:
        """How many zeros fill the last block; None if only the run can tell."""
        return None if self._length is None else -self._length % self._width

    def _split(self, x: Any) -> Any:
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

    def _join(self, split: Any) -> Any:
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
