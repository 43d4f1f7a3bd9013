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
        if saturates_negative(spec):
            high = percentile_of(bins, self.percentile, least=0.0)
        else:
            far = largest_magnitudes(bins, 1.0 - self.percentile / 100.0)
            high = percentile_of(far, self.percentile, before=int(bins.count.sum() - far.count.sum()))
        return -high, high


def largest_magnitudes(bins: Bins, share: float) -> Bins:
    """The bins of |x| that hold a share of the largest values and the next few; the others need not be merged."""
    end = np.cumsum(bins.count)
    wanted = min(int(share * float(end[-1])) + 3, int(end[-1]))
    highest = int(bins.code[np.searchsorted(end, end[-1] - wanted, side="right")])
    lowest = int(bins.code[np.searchsorted(end, wanted)])
    # From this magnitude on, the values of one sign alone are as many as wanted. At zero no sign has as many.
    code = max(highest, -lowest, 0)
    if code == 0:
        return bins.magnitudes()
    start, stop = np.searchsorted(bins.code, -code, side="right"), np.searchsorted(bins.code, code)
    parts = (bins.code, bins.lower, bins.upper, bins.count)
    return Bins(*(np.concatenate([part[:start], part[stop:]]) for part in parts)).magnitudes()


def percentile_of(bins: Bins, percentile: float, *, before: int = 0, least: float = -math.inf) -> float:
    """Percentile of the binned values, values of one bin taken as evenly spread over it.

    `before` smaller values come before those of the bins. Values below `least` count as that.
    """
    end = np.cumsum(bins.count) + before
    last = int(end[-1]) - 1
    position = min(max(percentile / 100.0, 0.0), 1.0) * last
    below = min(math.floor(position), last)
    value = max(_value_at(bins, end, below), least)
    share = position - below
    return value + share * (max(_value_at(bins, end, below + 1), least) - value) if share > 0.0 else value


def _value_at(bins: Bins, end: np.ndarray, rank: int) -> float:
    """The value with `rank` smaller ones before it; the first and the last are exact."""
    if rank == 0:
        return float(bins.lower[0])
    if rank == int(end[-1]) - 1:
        return float(bins.upper[-1])
    i = int(np.searchsorted(end, rank, side="right"))
    inside = (rank - int(end[i] - bins.count[i]) + 0.5) / int(bins.count[i])
    return float(bins.lower[i] + inside * (bins.upper[i] - bins.lower[i]))
