"""What several number formats need in torch: steps of integers, roundings and powers of two, bit for bit as in numpy.

Imported by functions that compute with torch, never with a package.
"""

from __future__ import annotations

import torch
from torch import Tensor

from onnxq.types.spec import QuantSpec, Rounding


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


def round_in_place(x: Tensor, rounding: Rounding) -> Tensor:
    """Each value rounded to an integer, in the memory of `x` or in new memory; a zero may get another sign.

    The values are within the range of an integer format, or NaN, which stays.
    """
    if rounding == "half_even":
        return x.round_()
    if rounding == "floor":
        return x.floor_()
    if rounding == "half_up":
        return _half_up(x)
    magnitude = x.abs()
    rounded = _half_up(magnitude if rounding == "half_away" else magnitude.neg_())
    return rounded.copysign_(x)


def _half_up(x: Tensor) -> Tensor:
    """floor((floor(2 x) + 1) / 2), which is floor(x + 1/2) without a sum that is rounded: every step is exact."""
    doubled = x.mul_(2).floor_()
    return torch.add(x.new_full((), 0.5), doubled, alpha=0.5, out=doubled).floor_()


# Powers come from the bits of floating-point numbers: exact, where a library's logarithm and power may not be.


def power_of_two(exponent: Tensor) -> Tensor:
    """2^exponent in float32 for whole exponents (int32) from -149 to 127."""
    exponent = exponent.to(torch.int32)
    normal = (exponent.clamp(min=-126) + 127) << 23
    subnormal = torch.ones_like(exponent) << (exponent.clamp(max=-127) + 149)
    return torch.where(exponent >= -126, normal, subnormal).view(torch.float32)


def power_of_two_double(exponent: Tensor) -> Tensor:
    """2^exponent in float64 for whole exponents (int64) from -1022 to 1023."""
    return ((exponent.to(torch.int64) + 1023) << 52).view(torch.float64)


def nearest_power_of_two(values: Tensor) -> Tensor:
    """2^round(log2(value)) in float32 for positive values; a power of two is itself, infinity and NaN are NaN."""
    mantissa, exponent = torch.frexp(values)
    # value = mantissa * 2^exponent with mantissa in [1/2, 1), and no float32 number is the square root of a half.
    nearest = power_of_two((exponent - (mantissa < 0.5**0.5).to(exponent.dtype)).clamp(-149, 127))
    return nearest.masked_fill_(~values.isfinite(), torch.nan)
