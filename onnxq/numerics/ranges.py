"""From a range of real values to scale and zero point; always float64 inside, float32 out.

    symmetric, signed      scale = max(|low|, |high|) / min(-qmin, qmax)    int8: / 127, narrow range or not
    signed_scale           scale = low / qmin or high / qmin, whichever is larger   int4: -8 is the largest value
    symmetric, qmin = 0    scale = high / qmax                              negative values saturate to 0
    asymmetric             scale = (high - low) / (qmax - qmin),  zero_point = clip(half_even(qmin - low / scale))
    fp8                    scale = max(|low|, |high|) / largest             448 or 57344
    fp16, bf16, bfp16      scale = 1
    nnie8                  scale = 2^(round(16 * log2(max(|low|, |high|))) / 16)
    MX, NVFP4              a power of two, or a number of 4 significant bits (`NumberFormat.scale_for`)

A range is first widened to include 0, so that 0 (padding, ReLU) is represented exactly. A signed format without
positive numbers (int1 is [-1, 0]) divides by -qmin. `power_of_two` takes the smallest power of two that is not
below the scale the range asks for, hence never clips more than that scale would.

Scales are never zero, never subnormal. A range of exactly zero (a dead channel) is treated as a range of 1: any scale
represents its zeros, and one of ordinary size disturbs nobody (a tiny one makes bias / (input * weight) overflow).
Every other scale is at least MIN_SCALE.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from onnxq.errors import DataError, SpecError
from onnxq.numerics.rounding import round_values
from onnxq.types.qparams import QParams
from onnxq.types.spec import QuantSpec

MIN_SCALE = 2.0**-62
"""Floor of a scale (2.2e-19): the product of two, a bias scale, is still a normal float32 number, and weights around
1e-9 keep all the steps of a 16-bit format."""

MAX_SCALE = float(np.finfo(np.float32).max)

_NOT_FINITE = (
    "a range must be finite, but its ends hold NaN or infinity: check the calibration data and the float model's own "
    "outputs, or leave this tensor in float"
)
_EMPTY = "a range must not be empty: its low end lies above its high end"


def qparams_from_range(low: npt.ArrayLike, high: npt.ArrayLike, spec: QuantSpec) -> QParams:
    """Scale and zero point with which `spec` covers [low, high].

    `low` and `high` are numbers, or arrays with one entry for each channel or block, in the shape of the scale.
    """
    if spec.has_scale and not spec.power_of_two and not spec.signed_scale and np.ndim(low) == np.ndim(high) == 0:
        return _of_numbers(float(low), float(high), spec)  # type: ignore[arg-type]
    low64, high64 = _checked_range(low, high)
    if not spec.has_scale:
        return QParams(spec, np.ones((), np.float32), np.zeros((), np.int32))
    width = _width(low64, high64, spec)
    scale = np.where(width == 0, 1.0, width) / spec.steps
    if spec.power_of_two:
        scale = next_power_of_two(scale)
    scale = spec.format.scale_for(np.maximum(scale, MIN_SCALE), spec)
    scale32 = np.minimum(np.maximum(scale, MIN_SCALE), MAX_SCALE).astype(np.float32)
    zero_point = np.zeros(scale32.shape, np.int32)
    if spec.signed_scale:
        scale32 = np.where(high64 > -low64, -scale32, scale32)
    if not spec.symmetric:
        # With the float32 scale, which is the one that will be used.
        exact = round_values(spec.qmin - low64 / scale32.astype(np.float64), "half_even")
        zero_point = np.clip(exact, spec.qmin, spec.qmax).astype(np.int32)
    return QParams(spec, scale32, zero_point)


def _of_numbers(low: float, high: float, spec: QuantSpec) -> QParams:
    """The same for a single range, as most are, in the numbers of Python: numpy takes a microsecond for each step."""
    if not (math.isfinite(low) and math.isfinite(high)):
        raise DataError(_NOT_FINITE)
    if low > high:
        raise DataError(_EMPTY)
    low, high = min(low, 0.0), max(high, 0.0)
    side = high if spec.symmetric and spec.ends[0] == 0 else max(-low, high)
    width = side if spec.symmetric else high - low
    legal = spec.format.legal_scale(np.asarray(max((width or 1.0) / spec.steps, MIN_SCALE)))
    scale32 = np.float32(min(max(float(legal), MIN_SCALE), MAX_SCALE))
    zero_point = 0
    if not spec.symmetric:
        zero_point = min(max(round(spec.qmin - low / float(scale32)), spec.qmin), spec.qmax)
    return QParams(spec, np.asarray(scale32), np.asarray(zero_point, np.int32))


def next_power_of_two(scale: np.ndarray) -> np.ndarray:
    """The smallest power of two that is not below each (positive) value; exact powers are unchanged."""
    mantissa, exponent = np.frexp(np.asarray(scale, dtype=np.float64))
    return np.asarray(np.ldexp(1.0, exponent - (mantissa == 0.5)))


def with_float16_scale(qparams: QParams) -> QParams:
    """The same parameters with scales that float16 holds exactly, for the Q/DQ nodes of a float16 model.

    Scales are rounded up, so that nothing is clipped that was not clipped before; the step grows by 0.1% at most
    above 6e-5 (2^-14, where float16 becomes subnormal) and is never below 6e-8 (2^-24).
    """
    with np.errstate(over="ignore"):
        half = qparams.scale.astype(np.float16)
        away = np.copysign(np.float16(np.inf), half)
        half = np.where(np.abs(half.astype(np.float32)) < np.abs(qparams.scale), np.nextafter(half, away), half)
    if not np.all(np.isfinite(half)):
        largest = float(np.abs(qparams.scale).max())
        raise SpecError(f"scale {largest:g} is beyond float16 (65504): keep this tensor in float, or use float32")
    return QParams(qparams.spec, half.astype(np.float32), qparams.zero_point)


def with_minimum_scale(qparams: QParams, minimum: float) -> QParams:
    """The same parameters with no scale below `minimum`, which is itself raised to what the format can have.

    A zero point moves with its scale, so that the lowest number of the range stays the lowest.
    """
    spec = qparams.spec
    if minimum <= 0 or not spec.has_scale:
        return qparams
    floor = np.asarray(min(minimum, MAX_SCALE))
    if spec.power_of_two:
        floor = next_power_of_two(floor)
    floor32 = np.float32(spec.format.legal_scale(floor, up=True))
    low = np.abs(qparams.scale) < floor32
    if not low.any():
        return qparams
    scale = np.where(low, np.copysign(floor32, qparams.scale), qparams.scale)
    if spec.symmetric:
        return QParams(spec, scale, qparams.zero_point)
    lowest = (spec.qmin - qparams.zero_point) * qparams.scale.astype(np.float64)
    moved = np.clip(round_values(spec.qmin - lowest / scale.astype(np.float64), "half_even"), spec.qmin, spec.qmax)
    return QParams(spec, scale, np.where(low, moved, qparams.zero_point).astype(np.int32))


def _checked_range(low: npt.ArrayLike, high: npt.ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Both ends as float64 arrays of one shape, widened to include zero."""
    low64, high64 = np.asarray(low, np.float64), np.asarray(high, np.float64)
    if low64.shape != high64.shape:
        low64, high64 = np.broadcast_arrays(low64, high64)
    if not (np.isfinite(low64).all() and np.isfinite(high64).all()):
        raise DataError(_NOT_FINITE)
    if (low64 > high64).any():
        raise DataError(_EMPTY)
    return np.minimum(low64, 0.0), np.maximum(high64, 0.0)


def _width(low: np.ndarray, high: np.ndarray, spec: QuantSpec) -> np.ndarray:
    """The distance to be covered by the steps of the format; their quotient is the scale."""
    if not spec.symmetric:
        return np.asarray(high - low)
    return high if spec.ends[0] == 0 else np.asarray(np.maximum(-low, high))
