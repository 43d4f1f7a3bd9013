"""Fixed point: p of a scale that is exactly 2^-p."""

from __future__ import annotations

import numpy as np


def exact_position(scale: np.ndarray | float) -> int | None:
    """p of a single scale 2^-p; None for several scales and for one that is no power of two."""
    values = np.asarray(scale, dtype=np.float64)
    if values.size != 1:
        return None
    value = float(values.reshape(()))
    if not (0.0 < value < np.inf):
        return None
    mantissa, exponent = np.frexp(value)
    return int(1 - exponent) if mantissa == 0.5 else None


def scale_at(position: int) -> np.float32:
    """2^-position."""
    return np.float32(np.ldexp(1.0, -position))
