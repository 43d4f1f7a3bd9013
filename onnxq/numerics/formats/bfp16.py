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
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from onnxq.errors import SpecError
from onnxq.numerics.formats.blocks import (
    BlockOperators,
    block_axis,
    block_chunks,
    blocks_of,
    from_blocks,
    in_blocks,
    narrowed,
    power_below,
    torch_blocks,
    torch_joined,
)
from onnxq.types.granularity import Granularity, PerBlock, PerTensor
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


def round_to_blocks(x: np.ndarray, blocks: PerBlock) -> np.ndarray:
    """The nearest values of bfp16, float32, for an array that begins at the boundary of a block."""
    x = np.asarray(x, np.float32)
    if x.size == 0:
        return x.copy()
    split = in_blocks(x, blocks)
    finite = np.isfinite(split)
    step = block_steps(np.where(finite, np.abs(split), np.float32(0)).max(axis=-1, keepdims=True))
    steps = np.rint(np.where(finite, split, np.float32(0)) / step)
    limited = np.clip(steps, -LARGEST_MANTISSA, LARGEST_MANTISSA) + np.float32(0)  # no negative zero
    return from_blocks(np.where(finite, limited * step, split), x.shape, blocks)


def block_steps(largest: np.ndarray) -> np.ndarray:
    """The step (float32) of blocks with these largest magnitudes, which are finite."""
    exponent = np.frexp(largest)[1] - 1
    exponent = np.where(largest == 0, LOWEST_EXPONENT, np.maximum(exponent, LOWEST_EXPONENT))
    return np.asarray(np.ldexp(np.float32(1), exponent - (MANTISSA_BITS - 1)))


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
        return _written(ops, blocks_of(parameters.spec))

    def torch_values(self, x: Tensor, scale: Tensor, zero_point: Tensor, spec: QuantSpec) -> Tensor:
        """`round_to_blocks` in torch."""
        import torch

        from onnxq.numerics.in_torch import power_of_two

        if x.numel() == 0:
            return x.clone()
        blocks = blocks_of(spec)
        split = torch_blocks(x, blocks)
        finite = split.isfinite()
        known = torch.where(finite, split, split.new_zeros(()))
        largest = known.abs().amax(block_axis(blocks, x.ndim) + 1, keepdim=True)
        exponent = torch.frexp(largest)[1] - 1
        exponent = exponent.clamp(min=LOWEST_EXPONENT).masked_fill_(largest == 0, LOWEST_EXPONENT)
        step = power_of_two(exponent - (MANTISSA_BITS - 1))
        values = (known / step).round_().clamp_(-LARGEST_MANTISSA, LARGEST_MANTISSA).add_(0.0).mul_(step)
        return torch_joined(torch.where(finite, values, split), x, blocks)


BFP16 = BlockFloat("bfp16", 16, has_scale=False)


def _written(to: Operators, blocks: PerBlock) -> Any:
    """The tensor that holds the values of bfp16, of the type of the source.

    step = max(power, 2^-127) * 2^-6       in float64, and then float32 again; power is that of `power_below`
    Div, Clip, Round, Mul                  x / step and back
    """
    parts = BlockOperators(to, blocks)
    split = parts.split(to.cast(to.source, np.dtype(np.float32)))
    finite, largest = parts.magnitudes(split)
    lowest = to.constant("lowest", np.float64(2.0 ** (LOWEST_EXPONENT - 1)))
    half_power = to.add("Max", [power_below(to, largest), lowest], shaped=False)
    step = narrowed(
        to, to.add("Mul", [half_power, to.constant("bits", np.float64(2.0 ** (2 - MANTISSA_BITS)))], shaped=False)
    )
    steps = to.add("Div", [split, step], shaped=False)
    bounds = [to.constant(side, np.float32(v)) for side, v in (("low", -LARGEST_MANTISSA), ("high", LARGEST_MANTISSA))]
    rounded = to.add("Round", [to.add("Clip", [steps, *bounds], shaped=False)], shaped=False)
    # Adding zero turns -0 into +0: a zero has no sign.
    zero = to.constant("zero", np.float32(0.0))
    values = to.add("Mul", [to.add("Add", [rounded, zero], shaped=False), step], shaped=False)
    kept = to.add("Where", [finite, values, split], values.dtype, shaped=False)
    return to.cast(parts.join(kept), to.kind)
