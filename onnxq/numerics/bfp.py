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

from collections.abc import Iterator

import numpy as np

from onnxq.numerics.chunks import CHUNK_ELEMENTS, chunks
from onnxq.types.granularity import PerBlock, resolve_axis

MANTISSA_BITS = 7
"""Bits of a magnitude; the sign is the eighth."""

LARGEST_MANTISSA = 2**MANTISSA_BITS - 1
LOWEST_EXPONENT = -127


def block_axis(blocks: PerBlock, rank: int) -> int:
    """The axis along which a tensor of this rank has its blocks: with a single one there is no choice."""
    return 0 if rank < 2 else resolve_axis(blocks.axis, rank)


def block_chunks(shape: tuple[int, ...], blocks: PerBlock) -> Iterator[tuple[slice, ...]]:
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
    """The nearest values of bfp16, float32, for an array that begins at the border of a block."""
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
