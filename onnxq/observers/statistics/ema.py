"""EmaStatistic: moving averages of each sample's minimum and maximum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self

import numpy as np

from onnxq.errors import UnsupportedError
from onnxq.observers.statistics.range import RangeStatistic, StatisticKind
from onnxq.types.granularity import resolve_axis


class EmaStatistic(RangeStatistic):
    """average = decay * average + (1 - decay) * sample, for minimum and maximum, started by the first sample.

    Later samples weigh more: the result depends on the order of the samples by definition, and two shards cannot be
    merged. It does not depend on the batch size, because a batch is taken apart into its samples (see `update`).
    """

    kind: ClassVar[StatisticKind] = "ema"

    def __init__(self, axis: int | None = None, decay: float = 0.9) -> None:
        super().__init__(axis)
        self.decay = decay
        self.average_minimum = np.zeros(0, np.float64)
        self.average_maximum = np.zeros(0, np.float64)

    def update(self, array: np.ndarray, sample: int = 0, *, batch: int = 1) -> None:
        values = np.asarray(array)
        channels_first = self.axis is not None and values.ndim > 0 and resolve_axis(self.axis, values.ndim) == 0
        if batch > 1 and values.ndim > 0 and not channels_first and values.shape[0] == batch:
            for i in range(batch):
                self._update_one(values[i : i + 1], sample + i)
        else:
            self._update_one(values, sample)

    def _update_one(self, values: np.ndarray, sample: int) -> None:
        one = RangeStatistic(self.axis)
        one.update(values, sample)
        self._absorb(one)
        if one.rows == 0:
            return
        if len(self.average_minimum) == 0:
            self.average_minimum = np.full(one.rows, np.nan)
            self.average_maximum = np.full(one.rows, np.nan)
        for average, value in ((self.average_minimum, one.minimum), (self.average_maximum, one.maximum)):
            seen = one.count > 0
            first = seen & np.isnan(average)
            later = seen & ~first
            average[later] = self.decay * average[later] + (1.0 - self.decay) * value[later].astype(np.float64)
            average[first] = value[first]

    def merge(self, other: Self) -> None:
        """Only with an empty side: a moving average has no meaning across shards."""
        if other.rows and self.rows:
            raise UnsupportedError(
                "moving averages (ema_minmax) depend on the order of the samples, so two shards cannot be merged: "
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
        statistic.decay = float(arrays["decay"])
        statistic.average_minimum = np.array(arrays["average_minimum"], np.float64)
        statistic.average_maximum = np.array(arrays["average_maximum"], np.float64)
        return statistic
