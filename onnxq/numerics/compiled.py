"""Rounding of large arrays in C, where that was built: `_rounding.c`, with the bits that numpy computes.

Each function says whether it did the work. It does where values are contiguous float32, rounded half to even to at most
16 bits, and NaN is not among them; otherwise its caller takes the way in numpy, which also knows the errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from onnxq.numerics.spare import SpareMemory
from onnxq.types.granularity import PerBlock, PerChannel, PerTensor, resolve_axis
from onnxq.types.spec import QuantSpec

try:
    import onnxq.numerics._rounding as rounding
except ImportError:
    rounding = None

COMPILED = rounding is not None
"""Whether C is available in this installation."""

LONGEST_BLOCK = 128
"""Values of a block whose squares numpy adds up in one way, which C follows."""

MOST_BITS = 16


def round_in_c(x: np.ndarray, spec: QuantSpec, scale: np.ndarray, zero_point: np.ndarray, out: np.ndarray) -> bool:
    """`quantize` into bytes, or `fake_quantize` into float32, of a whole array: whichever the type of `out` says."""
    if not (COMPILED and _plain(x, spec) and out.flags.c_contiguous and x.size):
        return False
    if out.dtype != np.float32 and out.dtype.itemsize != 1:
        return False
    layout = _rows(x.shape, spec)
    if layout is None:
        return False
    work = rounding.fake if out.dtype == np.float32 else rounding.encode
    parameters = (np.ascontiguousarray(scale), np.ascontiguousarray(zero_point))
    return bool(work(x, *parameters, out, *layout, spec.qmin, spec.qmax))


def block_ranges_in_c(x: np.ndarray, blocks: PerBlock, low: np.ndarray, high: np.ndarray) -> bool:
    """The least and the largest value of each block, in the shape of the scale; no if one of them is not finite."""
    sizes = _whole_blocks(x.shape, blocks)
    if not COMPILED or sizes is None or x.dtype != np.float32 or not x.flags.c_contiguous:
        return False
    return bool(rounding.ranges(x, low, high, *sizes))


def search_block_scales_in_c(
    x: np.ndarray,
    spec: QuantSpec,
    scale: np.ndarray,
    zero_point: np.ndarray,
    factors: Sequence[float],
    limits: tuple[float, float],
) -> bool:
    """Give each block the factor of its range with the least squared error, if that is less than it has, in place.

    `limits` are the least and the largest scale (`onnxq.numerics.ranges`). Where the answer is no, nothing may be read
    from `scale` and `zero_point`.
    """
    if not COMPILED or not isinstance(spec.granularity, PerBlock) or not _plain(x, spec) or spec.power_of_two:
        return False
    sizes = _whole_blocks(x.shape, spec.granularity)
    if sizes is None or sizes[1] > LONGEST_BLOCK:
        return False
    tried, signs = np.asarray(factors, np.float64), (spec.symmetric, spec.signed_scale)
    format = (spec.qmin, spec.qmax, *signs, float(spec.steps))
    return bool(rounding.search(x, scale, zero_point, tried, *sizes, *format, *limits))


def all_finite(x: np.ndarray) -> bool:
    """Whether no value of a floating-point array is NaN or infinite."""
    if COMPILED and x.dtype == np.float32 and x.flags.c_contiguous and x.size:
        return bool(rounding.finite(x))
    return bool(np.isfinite(x).all())


def in_float32(x: np.ndarray, memory: SpareMemory | None = None) -> np.ndarray:
    """A copy in float32: `x.astype(np.float32)`, into memory that another one has left."""
    out = np.empty(x.shape, np.float32) if memory is None else memory.array(x.shape)
    if COMPILED and x.dtype == np.float16 and x.flags.c_contiguous and x.size:
        rounding.widen(x.view(np.uint16), out)
    else:
        out[...] = x
    return out


def pack_in_c(codes: np.ndarray, out: np.ndarray, bits: int, *, transposed: bool, signed: bool) -> bool:
    """Codes [rows, columns], or turned round, side by side in the bytes of [rows, bytes]; the rest of a row stays.

    Signed numbers q become q + 2^(bits - 1).
    """
    rows, columns = codes.shape[::-1] if transposed else codes.shape
    plain = codes.itemsize == 1 and codes.flags.c_contiguous and out.flags.c_contiguous and bool(codes.size)
    if not COMPILED or not plain or not (transposed or columns * bits % 8 == 0):
        return False
    mask, turned = (1 << bits) - 1, (1 << (bits - 1)) if signed else 0
    rounding.pack(codes.view(np.uint8), out, rows, columns, out.shape[1], bits, transposed, mask, turned)
    return True


def _plain(x: np.ndarray, spec: QuantSpec) -> bool:
    few = spec.evenly_spaced and spec.bits <= MOST_BITS and spec.rounding == "half_even"
    return few and x.dtype == np.float32 and x.flags.c_contiguous


def _whole_blocks(shape: tuple[int, ...], blocks: PerBlock) -> tuple[int, int, int] | None:
    """Blocks behind each other, values of one, and values side by side; None where the last block is shorter."""
    axis = resolve_axis(blocks.axis, len(shape))
    if prod(shape) == 0 or shape[axis] % blocks.size:
        return None
    return prod(shape[:axis]) * (shape[axis] // blocks.size), blocks.size, prod(shape[axis + 1 :])


def _rows(shape: tuple[int, ...], spec: QuantSpec) -> tuple[int, int, int, int, bool] | None:
    """rows, length, repeat, period, vector: which scales belong to which run of values (see `_rounding.c`)."""
    granularity = spec.scale_granularity
    if isinstance(granularity, PerTensor):
        return 1, prod(shape), 1, 1, False
    axis = resolve_axis(granularity.axis, len(shape))
    before, inner = prod(shape[:axis]), prod(shape[axis + 1 :])
    if isinstance(granularity, PerChannel):
        if inner == 1:
            return before, shape[axis], 1, 1, True
        return before * shape[axis], inner, 1, shape[axis], False
    sizes = _whole_blocks(shape, granularity)
    if sizes is None:
        return None
    blocks, size, inner = sizes
    if inner == 1:
        return blocks, size, 1, blocks, False
    return blocks * size, inner, size, blocks, True
