"""EmaStatistic: moving averages of the range that an observer finds for each sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self

import numpy as np

from onnxq.errors import UnsupportedError
from onnxq.observers.statistics.per_sample import PerSampleStatistic, SampleObserver
from onnxq.observers.statistics.range import StatisticKind, stored
from onnxq.types.spec import QuantSpec


class EmaStatistic(PerSampleStatistic):
    """average = decay * average + (1 - decay) * sample, for both ends of the range, started by the first sample.

    Later samples weigh more: the result depends on the order of the samples by definition, and two shards cannot be
    merged. The averages are of minimum and maximum unless an `inner` observer is given.
    """

    kind: ClassVar[StatisticKind] = "ema"
    ordered: ClassVar[bool] = True

    def __init__(
        self,
        axis: int | None = None,
        decay: float = 0.9,
        inner: SampleObserver | None = None,
        spec: QuantSpec | None = None,
    ) -> None:
        super().__init__(axis, inner, spec)
        self.decay = decay
        self.average_minimum = np.zeros(0, np.float64)
        self.average_maximum = np.zeros(0, np.float64)

    def _take(self, low: np.ndarray, high: np.ndarray, valid: np.ndarray) -> None:
        if len(self.average_minimum) == 0:
            self.average_minimum = np.full(len(low), np.nan)
            self.average_maximum = np.full(len(low), np.nan)
        for average, value in ((self.average_minimum, low), (self.average_maximum, high)):
            first = valid & np.isnan(average)
            later = valid & ~first
            average[later] = self.decay * average[later] + (1.0 - self.decay) * value[later]
            average[first] = value[first]

    def merge(self, other: Self) -> None:
        """Only with an empty side: a moving average has no meaning across shards."""
        if other.rows and self.rows:
            raise UnsupportedError(
                "moving averages (ema_ observers) depend on the order of the samples, so two shards cannot be merged: "
                "calibrate in one process, or use minmax, percentile, mse or kl"
            )
        super().merge(other)
        if other.rows:
            self.average_minimum = other.average_minimum.copy()
            self.average_maximum = other.average_maximum.copy()

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {
            **super().to_arrays(),
            "decay": np.array(self.decay),
            "average_minimum": self.average_minimum,
            "average_maximum": self.average_maximum,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        statistic = super().from_arrays(arrays)
        statistic.decay = float(stored(arrays, "decay", np.float64, ()))
        statistic.average_minimum = stored(arrays, "average_minimum", np.float64, (statistic.rows,))
        statistic.average_maximum = stored(arrays, "average_maximum", np.float64, (statistic.rows,))
        return statistic
