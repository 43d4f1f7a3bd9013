"""Ranges for observers that choose a scale: what `qparams_from_range` makes of a range, and the way back."""

from __future__ import annotations

import numpy as np

from onnxq.errors import UnsupportedError
from onnxq.types.spec import QuantSpec


def levels_of_magnitude(spec: QuantSpec, *, one_sided: bool) -> int:
    """How many steps an integer format has for |x|; at least 2. `one_sided` values are all positive or all negative."""
    if spec.symmetric:
        return max(2, -spec.qmin, spec.qmax)
    steps = spec.qmax - spec.qmin
    return max(2, steps if one_sided else (steps + 1) // 2)


def covering_scale(low: np.ndarray, high: np.ndarray, spec: QuantSpec) -> np.ndarray:
    """The smallest scale with which no value of [low, high] is clipped; a range of zero counts as a range of 1.

    symmetric, signed      max(low / qmin, high / qmax)     int8: -128 steps down, 127 up
    scales of either sign  max(-low, high) / -qmin
    symmetric, qmin = 0    high / qmax
    asymmetric             (high - low) / (qmax - qmin)
    fp8, nnie8             max(-low, high) / largest; the next value of the grid itself may be 2 % below it
    """
    low, high = np.minimum(low, 0.0), np.maximum(high, 0.0)
    if not spec.symmetric:
        scale = (high - low) / spec.steps
    elif spec.signed_scale:
        scale = np.maximum(-low, high) / spec.steps
    else:
        lowest, highest = spec.ends
        down = low / lowest if lowest else np.zeros_like(low)
        up = high / highest if highest else np.zeros_like(high)
        scale = np.maximum(down, up)
    return np.where(scale == 0, 1.0 / spec.steps, scale)


def range_with_scale(
    scale: np.ndarray, low: np.ndarray, high: np.ndarray, spec: QuantSpec
) -> tuple[np.ndarray, np.ndarray]:
    """The range that `qparams_from_range` turns into `scale`, placed over the values [low, high].

    The zero point of an asymmetric format is qmin - low / scale. Where `scale` is too small for all of [low, high],
    both ends are clipped by the same factor. Scales of zero give a range of zero.
    """
    steps = spec.steps
    if spec.symmetric:
        return -scale * steps, scale * steps
    low, high = np.minimum(low, 0.0), np.maximum(high, 0.0)
    safe = np.where(scale > 0, scale, 1.0)
    shrink = np.minimum(1.0, safe * steps / np.where(high > low, high - low, 1.0))
    # Whole steps on both sides: for a power of two every product is exact, and so is the scale that comes back.
    zero_point = np.clip(np.rint(spec.qmin - low * shrink / safe), spec.qmin, spec.qmax)
    return (spec.qmin - zero_point) * scale, (spec.qmax - zero_point) * scale


def need_integer_levels(name: str, spec: QuantSpec) -> None:
    """Refuse the floating-point and logarithmic formats for an observer whose formula counts evenly spaced levels."""
    if not spec.evenly_spaced:
        raise UnsupportedError(
            f"observer '{name}' counts evenly spaced levels, which {spec.dtype} does not have: use minmax, "
            "percentile or mse"
        )
