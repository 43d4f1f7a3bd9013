"""What values become in a number format: `onnxq.numerics.fake_quantize` in torch, bit for bit, without gradients.

    integers       (clip(round(x / scale), qmin - zero_point, qmax - zero_point)) * scale     float32
    int32          the quotient, its limits and its rounding are float64
    fp8, fp16 ..   saturate(round_to_format(x / scale)) * scale
    nnie8          the nearest power of 2^(1/16), computed in float64
    bfp16          a multiple of the step that neighbours share

x / scale is a division, as in `numerics` and in onnxruntime. torch.fake_quantize_per_tensor_affine multiplies with
1 / scale, which differs at ties; it is also several times slower on a CPU than the four operations in place here. A
zero has no sign where the format is an integer.

NaN stays NaN in every format, so that a loss that explodes is seen. `numerics` refuses NaN for integers.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from onnxq.numerics import block_axis, float_max
from onnxq.numerics.bfp import LARGEST_MANTISSA, LOWEST_EXPONENT, MANTISSA_BITS
from onnxq.numerics.nnie import STEPS_PER_OCTAVE
from onnxq.torchnet.fake_quantize.layout import Layout
from onnxq.torchnet.fake_quantize.nnie_grid import nnie_grid_values
from onnxq.torchnet.fake_quantize.powers import power_of_two
from onnxq.torchnet.fake_quantize.rounding import round_in_place
from onnxq.types.granularity import PerBlock
from onnxq.types.spec import QuantSpec

_STORAGE = {
    "fp8_e4m3": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}

_BEYOND = {"fp8_e4m3": 464.0, "fp8_e5m2": 61440.0, "fp16": 65520.0, "bf16": (2 - 2**-8) * 2.0**127, "bfp16": math.inf}
_BEYOND |= {"nnie8": 2 ** (0.5 / STEPS_PER_OCTAVE)}
"""Magnitudes, in units of the scale, from which values saturate instead of being rounded to the largest."""


def grid_values(x: Tensor, scale: Tensor, zero_point: Tensor, spec: QuantSpec) -> Tensor:
    """The numbers of `spec` for float32 values; scale and zero point broadcast against them (`Layout`)."""
    if spec.grid == "affine":
        return _int32(x, scale, spec) if spec.dtype == "int32" else _affine(x, scale, zero_point, spec)
    if spec.grid == "nnie":
        return nnie_grid_values(x, scale)
    if spec.shared_exponent is not None:
        return _shared_exponent(x, spec.shared_exponent)
    largest = float_max(spec.dtype)
    return (x / scale).clamp_(-largest, largest).to(_STORAGE[spec.dtype]).float().mul_(scale)


def limits(spec: QuantSpec, *, rounded: bool) -> tuple[float, float]:
    """The ends of a format in units of its scale, before the zero point is taken off.

    `rounded` moves them outwards to where values begin to saturate instead of being rounded to the end.
    """
    if spec.grid == "affine":
        return (spec.qmin - 0.5, spec.qmax + 0.5) if rounded else (spec.qmin, spec.qmax)
    largest = _BEYOND[spec.dtype] if rounded else float_max(spec.dtype)
    return -largest, largest


def affine_ratio(x: Tensor, scale: Tensor, zero_point: Tensor, spec: QuantSpec) -> Tensor:
    """x / scale, limited to what the format has: a tensor of its own, which the caller may overwrite."""
    ratio = x / scale
    if spec.symmetric:
        return ratio.clamp_(spec.qmin, spec.qmax)
    if zero_point.ndim == 0 and not zero_point.is_cuda:
        moved = int(zero_point)
        return ratio.clamp_(spec.qmin - moved, spec.qmax - moved)
    low, high = (spec.qmin - zero_point).to(ratio.dtype), (spec.qmax - zero_point).to(ratio.dtype)
    return ratio.clamp_(low, high)


def affine_values(steps: Tensor, scale: Tensor) -> Tensor:
    """Whole numbers of steps times the scale, in the memory of `steps`; a zero has no sign."""
    if scale.ndim == 0 and not scale.is_cuda:
        # 0 + scale * steps: the product and the sum, which turns -0 into 0, in one pass.
        return torch.add(steps.new_zeros(()), steps, alpha=float(scale), out=steps)
    return steps.add_(0.0).mul_(scale)


def _affine(x: Tensor, scale: Tensor, zero_point: Tensor, spec: QuantSpec) -> Tensor:
    return affine_values(round_in_place(affine_ratio(x, scale, zero_point, spec), spec.rounding), scale)


def _int32(x: Tensor, scale: Tensor, spec: QuantSpec) -> Tensor:
    ratio = (x.double() / scale.double()).clamp_(spec.qmin, spec.qmax)
    return affine_values(round_in_place(ratio, spec.rounding).float(), scale)


def _shared_exponent(x: Tensor, blocks: PerBlock) -> Tensor:
    """See `onnxq.numerics.bfp`, of which this is `round_to_blocks`."""
    if x.numel() == 0:
        return x.clone()
    flat = x.reshape(1) if x.ndim == 0 else x
    layout = Layout(tuple(flat.shape), block_axis(blocks, flat.ndim), blocks.size)
    split = layout.split(flat)
    assert layout.axis is not None
    finite = split.isfinite()
    known = torch.where(finite, split, split.new_zeros(()))
    largest = known.abs().amax(layout.axis + 1, keepdim=True)
    exponent = torch.frexp(largest)[1] - 1
    exponent = exponent.clamp(min=LOWEST_EXPONENT).masked_fill_(largest == 0, LOWEST_EXPONENT)
    step = power_of_two(exponent - (MANTISSA_BITS - 1))
    values = (known / step).round_().clamp_(-LARGEST_MANTISSA, LARGEST_MANTISSA).add_(0.0).mul_(step)
    return layout.join(torch.where(finite, values, split)).reshape(x.shape)
