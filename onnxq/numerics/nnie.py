"""The logarithmic 8-bit grid of HiSilicon's NNIE: zero, and 128 positive and 127 negative powers of 2^(1/16).

A tensor has one parameter, the clip value c, with 16 * log2(c) = n an integer. With z = n - 127:

    code          value               values x that get it
    0x00..0x7F    2^((k + z) / 16)    x >= 2^(z / 16 - 1),       k = clamp(round(16 * log2(x)) - z, 0, 127)
    0x80          0                   between the two
    0x81..0xFF    -2^((k + z) / 16)   x < -2^((z + 1) / 16 - 1), k = clamp(round(16 * log2(-x)) - z, 1, 127)

The smallest values are reached from half of them on, so everything is rounded to the nearest power but those near zero.
Codes are computed in float64. The rounding of 16 * log2(x) has no ties: a tie would be at 2^(odd / 32), which is
irrational, and no float32 number lies closer to one than the error of a float64 logarithm (checked by the tests). Hence
every correct logarithm gives the same codes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

ZERO_CODE = 0x80
LEVELS = 127
"""The highest k, which stands for c itself."""

STEPS_PER_OCTAVE = 16
HIGHEST_STEP = 2047
"""16 * log2 of the largest clip value that float32 holds."""

_FRACTIONS = np.exp2(np.arange(STEPS_PER_OCTAVE) / STEPS_PER_OCTAVE)


def nnie_steps(clip: npt.ArrayLike) -> np.ndarray:
    """n = round(16 * log2(c)), int64, for positive clip values of any size; at most what float32 holds."""
    exact = STEPS_PER_OCTAVE * np.log2(np.asarray(clip, np.float64))
    return np.asarray(np.minimum(np.rint(exact), HIGHEST_STEP).astype(np.int64))


def nnie_power(steps: npt.ArrayLike) -> np.ndarray:
    """2^(steps / 16) in float64, from one table of sixteen fractions: exact powers of two are exact."""
    whole, part = np.divmod(np.asarray(steps, np.int64), STEPS_PER_OCTAVE)
    return np.asarray(np.ldexp(_FRACTIONS[part], whole))


def nnie_clip(clip: npt.ArrayLike) -> np.ndarray:
    """The legal clip value nearest to each given one (on the logarithmic scale), float64."""
    return nnie_power(nnie_steps(clip))


def nnie_bounds(clip: npt.ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """(a, b), float64: x >= a gets a positive code, x < -b a negative one."""
    z = nnie_steps(clip) - LEVELS
    return nnie_power(z - STEPS_PER_OCTAVE), nnie_power(z + 1 - STEPS_PER_OCTAVE)


def nnie_table(clip: npt.ArrayLike) -> np.ndarray:
    """The float32 value of each of the 256 codes of one clip value."""
    return nnie_values(np.arange(256), clip)


def nnie_codes(x: np.ndarray, clip: npt.ArrayLike) -> np.ndarray:
    """Sign-magnitude codes (uint8) of real values without NaN; `clip` is one number or broadcasts against `x`."""
    x = np.asarray(x, np.float64)
    z = nnie_steps(clip) - LEVELS
    positive_from, negative_from = nnie_bounds(clip)
    positive, negative = x >= positive_from, x < -negative_from
    with np.errstate(divide="ignore"):
        level = np.rint(STEPS_PER_OCTAVE * np.log2(np.abs(x))) - z
    level = np.clip(level, negative, LEVELS)  # the lowest k is 0 above zero and 1 below
    codes = np.where(positive, level, ZERO_CODE + np.where(negative, level, 0.0))
    return np.asarray(codes.astype(np.uint8))


def nnie_values(codes: np.ndarray, clip: npt.ArrayLike) -> np.ndarray:
    """Real float32 values of codes; `clip` is one number or broadcasts against `codes`."""
    codes = np.asarray(codes, np.int64)
    level = codes % ZERO_CODE
    with np.errstate(under="ignore"):
        magnitude = nnie_power(nnie_steps(clip) - LEVELS + level).astype(np.float32)
    signed = np.where(codes > ZERO_CODE, -magnitude, magnitude)
    return np.asarray(np.where(codes == ZERO_CODE, np.float32(0.0), signed), np.float32)
