"""The range that holds a given share of the values; the rest is clipped.

    asymmetric   [percentile (100 - p), percentile p]
    symmetric    percentile p of |x|

Percentiles interpolate between neighbouring values as numpy.percentile does. Each value is known to its bin of the
histogram, hence to 0.8 % at worst; the smallest and the largest are exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxq.errors import ConfigError
from onnxq.observers.base import OBSERVERS, Observer, histogram_of, outer_range, saturates_negative
from onnxq.observers.statistics import Bins, RangeStatistic, StatisticKind
from onnxq.types.spec import QuantSpec


@OBSERVERS.register("percentile")
@dataclass(frozen=True)
class Percentile(Observer):
    """Clips the share of values beyond `percentile`; 100 is minmax."""

    name: ClassVar[str] = "percentile"
    statistic: ClassVar[StatisticKind] = "histogram"
    percentile: float = 99.999

    def __post_init__(self) -> None:
        if not 50.0 < self.percentile <= 100.0:
            raise ConfigError(
                f"percentile of observer 'percentile' must be above 50 and at most 100, got {self.percentile:g}"
            )

    def rows(self, statistic: RangeStatistic, spec: QuantSpec) -> tuple[np.ndarray, np.ndarray]:
        histogram = histogram_of(statistic)
        ranges = [self._one(histogram.bins(row), spec) for row in range(histogram.rows)]
        low, high = np.array(ranges).T
        lowest, highest = outer_range(statistic)
        return np.maximum(low, lowest), np.minimum(high, highest)

    def _one(self, bins: Bins, spec: QuantSpec) -> tuple[float, float]:
        if not spec.symmetric:
            return percentile_of(bins, 100.0 - self.percentile), percentile_of(bins, self.percentile)
        high = percentile_of(bins.magnitudes(positive_only=saturates_negative(spec)), self.percentile)
        return -high, high


def percentile_of(bins: Bins, percentile: float) -> float:
    """Percentile of the binned values, values of one bin taken as evenly spread over it."""
    end = np.cumsum(bins.count)
    last = int(end[-1]) - 1
    position = min(max(percentile / 100.0, 0.0), 1.0) * last
    below = min(math.floor(position), last)
    value = _value_at(bins, end, below)
    share = position - below
    return value + share * (_value_at(bins, end, below + 1) - value) if share > 0.0 else value


def _value_at(bins: Bins, end: np.ndarray, rank: int) -> float:
    """The value with `rank` smaller ones before it; the first and the last are exact."""
    if rank == 0:
        return float(bins.lower[0])
    if rank == int(end[-1]) - 1:
        return float(bins.upper[-1])
    i = int(np.searchsorted(end, rank, side="right"))
    inside = (rank - int(end[i] - bins.count[i]) + 0.5) / int(bins.count[i])
    return float(bins.lower[i] + inside * (bins.upper[i] - bins.lower[i]))
