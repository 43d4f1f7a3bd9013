"""A range known beforehand: that of a Softmax or a Sigmoid, or one that the user measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxq.errors import ConfigError
from onnxq.observers.base import OBSERVERS, Observer
from onnxq.observers.statistics import RangeStatistic, StatisticKind
from onnxq.types.spec import QuantSpec


@OBSERVERS.register("fixed")
@dataclass(frozen=True)
class Fixed(Observer):
    """The range [low, high], whatever the data."""

    name: ClassVar[str] = "fixed"
    statistic: ClassVar[StatisticKind] = "range"

    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ConfigError(f"observer 'fixed' needs low < high, got {self.low:g} and {self.high:g}")

    def rows(self, statistic: RangeStatistic, spec: QuantSpec) -> tuple[np.ndarray, np.ndarray]:
        return np.full(statistic.minimum.shape, self.low), np.full(statistic.minimum.shape, self.high)
