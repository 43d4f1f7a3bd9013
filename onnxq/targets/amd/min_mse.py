"""The scale with the smallest squared error among few powers of two: the method Min_MSE of Vitis AI."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxq.observers.base import OBSERVERS, histogram_of
from onnxq.observers.mse import Mse
from onnxq.observers.positions import BoundedObserver, SearchingObserver
from onnxq.observers.statistics import RangeStatistic, StatisticKind
from onnxq.types.spec import QuantSpec


@OBSERVERS.register("min_mse")
@dataclass(frozen=True)
class MinMse(BoundedObserver, SearchingObserver):
    """minmax_floor for formats with power-of-two scales, mse for the others."""

    name: ClassVar[str] = "min_mse"
    statistic: ClassVar[StatisticKind] = "histogram"

    def rows(self, statistic: RangeStatistic, spec: QuantSpec) -> tuple[np.ndarray, np.ndarray]:
        return self.best_range(histogram_of(statistic), spec) if spec.power_of_two else Mse().rows(statistic, spec)
