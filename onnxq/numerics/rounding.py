"""Real numbers in units of a scale, and the one rounding function, exact at and next to every tie."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from onnxq.errors import SpecError, did_you_mean
from onnxq.types.spec import ROUNDINGS, Rounding


def quotient(x: np.ndarray, scale: np.ndarray, work: npt.DTypeLike = np.float32) -> np.ndarray:
    """x / scale, of float32 values and in float32 unless `work` says otherwise; what is too large is infinite."""
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(np.asarray(x).astype(np.float32, copy=False) / scale.astype(work, copy=False))


def round_values(x: np.ndarray, rounding: Rounding = "half_even") -> np.ndarray:
    """Round each value of a floating-point array to an integer of the same dtype.

        half_even     2.5 -> 2,  3.5 -> 4, -2.5 -> -2   IEEE 754 and onnxruntime
        half_up       2.5 -> 3, -2.5 -> -2              ties towards plus infinity
        half_away     2.5 -> 3, -2.5 -> -3              ties away from zero, C's round()
        half_to_zero  2.5 -> 2, -2.5 -> -2              ties towards zero
        floor         2.9 -> 2, -2.1 -> -3              an arithmetic right shift

    floor(x + 0.5) would be wrong: the sum itself rounds, so that 0.49999997 becomes 1 and 8388609 becomes 8388610 in
    float32. Here the nearest integer is found first; x minus it is exact in binary floating point, so ties are known
    exactly, and only they are decided again. Infinities and NaN come back unchanged.
    """
    if rounding not in ROUNDINGS:
        raise SpecError(
            f"unknown rounding '{rounding}'.{did_you_mean(rounding, ROUNDINGS)} Known: {', '.join(ROUNDINGS)}"
        )
    x = np.asarray(x)
    if rounding == "floor":
        return np.asarray(np.floor(x))
    nearest = np.asarray(np.rint(x))
    if rounding == "half_even":
        return nearest
    with np.errstate(invalid="ignore"):  # inf - inf is NaN, which is no tie
        ties = np.abs(x - nearest) == 0.5
    tied = x[ties]
    if rounding == "half_up":
        nearest[ties] = tied + x.dtype.type(0.5)
    elif rounding == "half_away":
        nearest[ties] = tied + np.copysign(x.dtype.type(0.5), tied)
    else:
        nearest[ties] = np.trunc(tied)
    return nearest
