"""The logarithmic grid of NNIE in torch: `nnie_values(nnie_codes(x))` of `onnxq.numerics.nnie`, bit for bit.

With one clip value, the upper 16 bits of a float32 (sign, exponent, 7 bits of the mantissa) leave at most two values to
choose from, as codes are further apart than that: tables have both, and the lower 16 bits decide. With several clip
values, codes are computed in float64.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from onnxq.numerics import nnie_codes
from onnxq.numerics.nnie import HIGHEST_STEP, LEVELS, STEPS_PER_OCTAVE, nnie_power, nnie_values
from onnxq.torchnet.fake_quantize.powers import power_of_two_double


def nnie_grid_values(x: Tensor, clip: Tensor) -> Tensor:
    """The nearest powers of 2^(1/16) up to `clip`, which is one number or broadcasts against `x`; NaN stays NaN."""
    if clip.ndim > 0 or not bool(clip.isfinite()):
        return _computed(x, clip)
    first, second, border = (table.to(x.device) for table in _tables(float(clip)))
    bits = x.view(torch.int32)
    upper = (bits >> 16).bitwise_and_(0xFFFF).reshape(-1)
    beyond = (bits & 0xFFFF).reshape(-1) >= border.index_select(0, upper)
    found = torch.where(beyond, second.index_select(0, upper), first.index_select(0, upper))
    return found.view(x.shape)


@lru_cache(maxsize=64)
def _tables(clip: float) -> tuple[Tensor, Tensor, Tensor]:
    """For each upper half of a float32: the value of its first numbers, of its last ones, and where those begin."""
    start = np.arange(2**16, dtype=np.uint32) << 16
    first, second = _values_of_bits(start, clip), _values_of_bits(start + 0xFFFF, clip)
    border = np.full(2**16, 0x10000, np.int32)
    mixed = np.flatnonzero((first != second) & ~(np.isnan(first) & np.isnan(second)))
    low, high = np.zeros(mixed.size, np.uint32), np.full(mixed.size, 0xFFFF, np.uint32)
    while (high - low > 1).any():
        middle = (low + high) // 2
        same = _values_of_bits(start[mixed] + middle, clip) == first[mixed]
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    border[mixed] = high
    return torch.from_numpy(first), torch.from_numpy(second), torch.from_numpy(border)


def _values_of_bits(bits: np.ndarray, clip: float) -> np.ndarray:
    x = bits.astype(np.uint32).view(np.float32)
    known = ~np.isnan(x)
    values = nnie_values(nnie_codes(np.where(known, x, np.float32(0)), clip), clip)
    return np.where(known, values, np.float32(np.nan))


def _computed(x: Tensor, clip: Tensor) -> Tensor:
    exact = x.double()
    steps = (STEPS_PER_OCTAVE * torch.log2(clip.double())).round().clamp(max=HIGHEST_STEP).nan_to_num(0.0)
    lowest = steps.to(torch.int64) - LEVELS
    positive = exact >= _power(lowest - STEPS_PER_OCTAVE)
    negative = exact < -_power(lowest + 1 - STEPS_PER_OCTAVE)
    level = (STEPS_PER_OCTAVE * torch.log2(exact.abs())).round_() - lowest
    level = torch.clamp(level.nan_to_num_(0.0), min=negative.double()).clamp_(max=LEVELS)
    magnitude = _power(lowest + level.to(torch.int64)).float()
    values = torch.where(positive, magnitude, torch.where(negative, -magnitude, magnitude.new_zeros(())))
    return torch.where(x.isnan() | clip.isnan(), torch.nan, values)


def _power(steps: Tensor) -> Tensor:
    """2^(steps / 16) in float64, as `numerics.nnie_power`."""
    fractions = torch.from_numpy(nnie_power(np.arange(STEPS_PER_OCTAVE))).to(steps.device)
    whole = torch.div(steps, STEPS_PER_OCTAVE, rounding_mode="floor")
    return fractions[steps - STEPS_PER_OCTAVE * whole] * power_of_two_double(whole)
