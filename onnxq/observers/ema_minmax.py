"""The range of a typical sample: moving averages of each sample's minimum and maximum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxq.errors import ConfigError
from onnxq.observers.base import OBSERVERS, Observer
from onnxq.observers.statistics import EmaStatistic, RangeStatistic, StatisticKind
from onnxq.types.spec import QuantSpec


@OBSERVERS.register("ema_minmax")
@dataclass(frozen=True)
class EmaMinMax(Observer):
    """Averages over about 1 / (1 - decay) samples; depends on the order of the samples, and shards do not merge."""

    name: ClassVar[str] = "ema_minmax"
    statistic: ClassVar[StatisticKind] = "ema"
    decay: float = 0.9

    def __post_init__(self) -> None:
        if not 0.0 <= self.decay < 1.0:
            raise ConfigError(f"decay of observer 'ema_minmax' must be at least 0 and below 1, got {self.decay:g}")

    def new_statistic(self, axis: int | None = None) -> RangeStatistic:
        return EmaStatistic(axis, self.decay)

    def rows(self, statistic: RangeStatistic, spec: QuantSpec) -> tuple[np.ndarray, np.ndarray]:
        assert isinstance(statistic, EmaStatistic)
        return statistic.average_minimum, statistic.average_maximum
