"""The whole range, outliers included: nothing that calibration saw is clipped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxq.observers.base import OBSERVERS, Observer
from onnxq.observers.statistics import RangeStatistic, StatisticKind
from onnxq.types.spec import QuantSpec


@OBSERVERS.register("minmax")
@dataclass(frozen=True)
class MinMax(Observer):
    """The exact minimum and maximum."""

    name: ClassVar[str] = "minmax"
    statistic: ClassVar[StatisticKind] = "range"

    def rows(self, statistic: RangeStatistic, spec: QuantSpec) -> tuple[np.ndarray, np.ndarray]:
        return statistic.minimum, statistic.maximum
