"""Block floating point (bfp16): neighbours along an axis share one exponent, and each value has 8 bits of its own.

    e    = floor(log2(max |x|))            over the finite values of a block, at least -127
    step = 2^(e - 6)
    q    = clip(round(x / step), -127, 127)                     half to even; a sign and 7 bits
    real = q * step

A block is `size` values in a row along `axis` (8, unless the format says otherwise), for every index of the other axes;
the last block may be shorter. The exponent is stored as 8 bits, biased by 127: 0 is that of zeros and of everything
below 2^-126, where steps are 2^-133. A magnitude of 127.5 steps or more saturates at 127. NaN and infinities stay what
they are and do not count for the exponent. A zero has no sign.

These are the numbers of AMD's NPU: BFPQuantizeDequantize of Quark with bfp_method "to_bfp", bit_width 16 and
rounding_mode 2, and BFPQuantizer of Vitis AI (which adds 2^-23 before it takes the logarithm). Quark leaves a tensor
with a single element as it is; here it is rounded like any other.

Everything is exact in float32: steps are powers of two, and quotients lie within (-128, 128). Every value has at most 7
significant bits and an exponent that bfloat16 has, so that bfloat16 holds it exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from onnxq.errors import SpecError, UnsupportedError
from onnxq.numerics.chunks import CHUNK_ELEMENTS, chunks
from onnxq.types.granularity import Granularity, PerBlock, PerTensor, resolve_axis
from onnxq.types.number_format import NumberFormat, Operators
from onnxq.types.qparams import QParams
from onnxq.types.spec import QuantSpec

if TYPE_CHECKING:
    from torch import Tensor

DEFAULT_BLOCKS = PerBlock(axis=1, size=8)
"""The blocks where nothing else is said: eight channels."""

_BFLOAT16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
MANTISSA_BITS = 7
"""Bits of a magnitude; the sign is the eighth."""

LARGEST_MANTISSA = 2**MANTISSA_BITS - 1
LOWEST_EXPONENT = -127


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


def round_to_blocks(x: np.ndarray, blocks: PerBlock) -> np.ndarray:
    """The nearest values of bfp16, float32, for an array that begins at the boundary of a block."""
    x = np.asarray(x, np.float32)
    if x.size == 0:
        return x.copy()
    split = _in_blocks(x, blocks)
    finite = np.isfinite(split)
    step = block_steps(np.where(finite, np.abs(split), np.float32(0)).max(axis=-1, keepdims=True))
    steps = np.rint(np.where(finite, split, np.float32(0)) / step)
    limited = np.clip(steps, -LARGEST_MANTISSA, LARGEST_MANTISSA) + np.float32(0)  # no negative zero
    return _from_blocks(np.where(finite, limited * step, split), x.shape, blocks)


def block_steps(largest: np.ndarray) -> np.ndarray:
    """The step (float32) of blocks with these largest magnitudes, which are finite."""
    exponent = np.frexp(largest)[1] - 1
    exponent = np.where(largest == 0, LOWEST_EXPONENT, np.maximum(exponent, LOWEST_EXPONENT))
    return np.asarray(np.ldexp(np.float32(1), exponent - (MANTISSA_BITS - 1)))


def _in_blocks(x: np.ndarray, blocks: PerBlock) -> np.ndarray:
    """The array with its blocks as the last axis, filled up with zeros, which no exponent notices."""
    last = np.moveaxis(np.atleast_1d(x), block_axis(blocks, x.ndim), -1)
    missing = -last.shape[-1] % blocks.size
    if missing:
        last = np.pad(last, [*((0, 0),) * (last.ndim - 1), (0, missing)])
    return last.reshape(*last.shape[:-1], -1, blocks.size)


def _from_blocks(split: np.ndarray, shape: tuple[int, ...], blocks: PerBlock) -> np.ndarray:
    if not shape:
        return np.asarray(split.reshape(-1)[0])
    axis = block_axis(blocks, len(shape))
    last = split.reshape(*split.shape[:-2], -1)[..., : shape[axis]]
    return np.moveaxis(last, -1, axis)


class BlockFloat(NumberFormat):
    """The granularity says which values share an exponent; there is no scale."""

    grid = "floating-point"
    summary = "floating point"
    has_nan = True

    @property
    def storage(self) -> np.dtype[Any]:
        return _BFLOAT16

    def encode(self, x: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, spec: QuantSpec) -> np.ndarray:
        with np.errstate(invalid="ignore"):  # NaN may be of the kind that signals
            return round_to_blocks(x, blocks_of(spec)).astype(self.storage)

    def decode(self, q: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, spec: QuantSpec) -> np.ndarray:
        return np.asarray(np.asarray(q).astype(np.float32) * scale)

    def ends(self, spec: QuantSpec, *, rounded: bool = False) -> tuple[float, float]:
        end = np.inf if rounded else LARGEST_MANTISSA * 2.0**121
        return -end, end

    def pieces(self, shape: Sequence[int], spec: QuantSpec) -> Iterator[tuple[slice, ...]]:
        return block_chunks(shape, blocks_of(spec))

    def check(self, spec: QuantSpec) -> None:
        super().check(spec)
        if not isinstance(spec.granularity, PerBlock) or spec.granularity.size < 2:
            raise SpecError(
                f"values of {self.name} share an exponent in blocks of 2 or more along an axis, got "
                f"{spec.granularity}: use PerBlock(axis, size), such as {DEFAULT_BLOCKS!r}"
            )
        if spec.power_of_two:
            raise SpecError(f"{self.name} has no scale, and its steps are powers of two: power_of_two does not apply")

    def check_parameters(self, spec: QuantSpec, scale: np.ndarray, zero_point: np.ndarray) -> None:
        if scale != 1:
            raise SpecError(f"{self.name} has no scale: its parameters are a scale of 1, got {scale}")

    def usual_granularity(self, given: Granularity) -> Granularity:
        return DEFAULT_BLOCKS if isinstance(given, PerTensor) else given

    def wanted_granularity(self, held: Granularity, axis: int | None, per_channel: bool | None) -> Granularity:
        blocks = held if isinstance(held, PerBlock) else DEFAULT_BLOCKS
        return PerBlock(blocks.axis if axis is None else axis, DEFAULT_BLOCKS.size)

    def operators(self, ops: Operators, parameters: QParams) -> Any:
        return _BlockOperators(ops, blocks_of(parameters.spec)).write()

    def torch_values(self, x: Tensor, scale: Tensor, zero_point: Tensor, spec: QuantSpec) -> Tensor:
        """`round_to_blocks` in torch."""
        import torch

        from onnxq.numerics.in_torch import power_of_two

        if x.numel() == 0:
            return x.clone()
        blocks = blocks_of(spec)
        axis = block_axis(blocks, x.ndim)
        flat = x if x.ndim else x.reshape(1)
        length = flat.shape[axis]
        filled = torch.nn.functional.pad(flat, [*[0, 0] * (flat.ndim - 1 - axis), 0, -length % blocks.size])
        before, after = flat.shape[:axis], flat.shape[axis + 1 :]
        split = filled.reshape(*before, -1, blocks.size, *after)
        finite = split.isfinite()
        known = torch.where(finite, split, split.new_zeros(()))
        largest = known.abs().amax(axis + 1, keepdim=True)
        exponent = torch.frexp(largest)[1] - 1
        exponent = exponent.clamp(min=LOWEST_EXPONENT).masked_fill_(largest == 0, LOWEST_EXPONENT)
        step = power_of_two(exponent - (MANTISSA_BITS - 1))
        values = (known / step).round_().clamp_(-LARGEST_MANTISSA, LARGEST_MANTISSA).add_(0.0).mul_(step)
        joined = torch.where(finite, values, split).flatten(axis, axis + 1)
        return joined.narrow(axis, 0, length).reshape(x.shape)


def blocks_of(spec: QuantSpec) -> PerBlock:
    """The blocks whose values share an exponent."""
    assert isinstance(spec.granularity, PerBlock)
    return spec.granularity


BFP16 = BlockFloat("bfp16", 16, has_scale=False)

_DOUBLE, _INT64, _BOOL = np.dtype(np.float64), np.dtype(np.int64), np.dtype(bool)
_OPSET_OF_AXES_INPUT = 18
"""From here on ReduceMax reads its axes from an input."""


class _BlockOperators:
    """The float operators of one tensor, whose sizes may be open.

        Pad, Reshape          the blocks become an axis of their own, filled up with zeros
        ReduceMax of |x|      over finite values only
        power = q - (1 - 2^-53) * q  with  q = (2^52 + 1) * max |x|                           in float64
        Div, Clip, Round      x / step with step = max(power, 2^-127) * 2^-6, which is float32 again
        Mul, Reshape, Slice   back to the tensor's own shape

    The third line is the largest power of two that is not above max |x| (Rump, Ogita and Oishi, "Accurate
    floating-point summation"): exact for every float32 number, because float64 neither overflows nor underflows there.
    A logarithm would not be, next to powers of two.
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
        if self._to.opset < _OPSET_OF_AXES_INPUT:
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
