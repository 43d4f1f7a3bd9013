"""Numbers for the page: short, and without what JSON does not have."""

from __future__ import annotations

import base64
import math

import numpy as np

DIGITS = 5
"""Significant digits: more than a chart shows."""

Number = float | str | None


def short(value: float | np.floating | None, digits: int = DIGITS) -> Number:
    """A number of few digits; infinities and NaN as text, None as it is."""
    if value is None:
        return None
    number = float(value)
    if not math.isfinite(number):
        return str(number)
    rounded = float(f"{number:.{digits}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def packed(values: np.ndarray) -> str:
    """Many numbers for a chart as text: the upper half of float32 each, exact to 0.4 %, in base64."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    halves = ((bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
    return base64.b64encode(halves.tobytes()).decode("ascii")
