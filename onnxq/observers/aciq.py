"""Analytical clipping (Banner et al., "Post training 4-bit quantization of convolutional networks", 2019).

With N steps for |x| up to the threshold t, rounding has a mean square of (t / N)^2 / 12. What clipping adds is known
for a Laplace distribution of scale b and for a Gauss distribution of deviation s, and the sum is smallest where

    Laplace   t = a * b,   exp(-a) = a / (12 N^2)                  N = 8 (int4): t = 5.03 b
    Gauss     t = a * s,   phi(a) - a * Q(a) = a / (24 N^2)        N = 8 (int4): t = 2.56 s

phi is the density and Q the upper tail of the normal distribution. b = mean|x| and s = sqrt(mean x^2), both over the
values other than zero, which every format holds exactly. Which of the two the values are, b / s tells: it is 0.707 for
Laplace and 0.798 for Gauss, and the nearer one is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxq.observers.base import OBSERVERS, Observer
from onnxq.observers.grid import need_integer_levels
from onnxq.observers.moments import moments
from onnxq.observers.statistics import Bins, RangeStatistic, StatisticKind
from onnxq.observers.thresholds import clip_magnitudes
from onnxq.types.spec import QuantSpec

BETWEEN = 0.5 * (math.sqrt(0.5) + math.sqrt(2.0 / math.pi))
"""Half way between the ratios b / s of Laplace and Gauss."""
FARTHEST = 64.0
"""No tail is that long: exp(-64) is below what 16 bits can matter."""


@OBSERVERS.register("aciq")
@dataclass(frozen=True)
class Aciq(Observer):
    """Clips |x| where theory has the least squared error for a Laplace or a Gauss distribution, whichever fits."""

    name: ClassVar[str] = "aciq"
    statistic: ClassVar[StatisticKind] = "histogram"

    def rows(self, statistic: RangeStatistic, spec: QuantSpec) -> tuple[np.ndarray, np.ndarray]:
        need_integer_levels(self.name, spec)
        return clip_magnitudes(statistic, spec, analytical_threshold)


def analytical_threshold(bins: Bins, levels: int) -> float:
    """The threshold for the values of |x| > 0 in `bins`."""
    seen = moments(bins)
    root_mean_square = math.hypot(seen.mean, seen.deviation)
    if seen.mean_magnitude < BETWEEN * root_mean_square:
        return laplace_factor(levels) * seen.mean_magnitude
    return gauss_factor(levels) * root_mean_square


def laplace_factor(levels: int) -> float:
    """Threshold over mean magnitude."""
    return _root(lambda a: math.exp(-a) - a / (12.0 * levels * levels))


def gauss_factor(levels: int) -> float:
    """Threshold over standard deviation."""

    def slope(a: float) -> float:
        density = math.exp(-0.5 * a * a) / math.sqrt(2.0 * math.pi)
        tail = 0.5 * math.erfc(a / math.sqrt(2.0))
        return density - a * tail - a / (24.0 * levels * levels)

    return _root(slope)


def _root(decreasing: Callable[[float], float]) -> float:
    """Where a function that falls from above zero to below zero crosses it, by halving the interval."""
    low, high = 0.0, FARTHEST
    while high - low > 1e-12 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if decreasing(middle) > 0 else (low, middle)
    return 0.5 * (low + high)
