"""Powers of two from the bits of floating-point numbers: exact, where a library's logarithm and power may not be."""

from __future__ import annotations

import torch
from torch import Tensor


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
