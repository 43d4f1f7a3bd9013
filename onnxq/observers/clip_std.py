"""The range of some standard deviations around the mean, and never more than the values have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxq.errors import ConfigError
from onnxq.observers.base import OBSERVERS, Observer, histogram_of
from onnxq.observers.moments import moments
from onnxq.observers.statistics import RangeStatistic, StatisticKind
from onnxq.types.spec import QuantSpec


@OBSERVERS.register("clip_std")
@dataclass(frozen=True)
class ClipStd(Observer):
    """[max(min, mean - sigmas * deviation), min(max, mean + sigmas * deviation)]."""

    name: ClassVar[str] = "clip_std"
    statistic: ClassVar[StatisticKind] = "histogram"
    sigmas: float = 2.6

    def __post_init__(self) -> None:
        if not 0.0 < self.sigmas < float("inf"):
            raise ConfigError(f"sigmas of observer 'clip_std' must be above 0 and finite, got {self.sigmas:g}")

    def rows(self, statistic: RangeStatistic, spec: QuantSpec) -> tuple[np.ndarray, np.ndarray]:
        histogram = histogram_of(statistic)
        found = [moments(histogram.bins(row)) for row in range(histogram.rows)]
        mean = np.array([one.mean for one in found])
        reach = self.sigmas * np.array([one.deviation for one in found])
        low, high = statistic.minimum.astype(np.float64), statistic.maximum.astype(np.float64)
        # The mean of a histogram can lie a hair outside values that are all alike; the ends must not cross.
        return np.clip(mean - reach, low, high), np.clip(mean + reach, low, high)
