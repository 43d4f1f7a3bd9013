"""Numbers for the page: short, and without what JSON does not have."""

from __future__ import annotations

import math
from collections.abc import Iterable

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


def shorts(values: Iterable[float] | np.ndarray, digits: int = DIGITS) -> list[Number]:
    return [short(value, digits) for value in values]
