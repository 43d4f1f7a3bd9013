"""The same range on both sides of zero, wide enough for the largest magnitude."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxq.observers.base import OBSERVERS, Observer, outer_range, saturates_negative
from onnxq.observers.statistics import RangeStatistic, StatisticKind
from onnxq.types.spec import QuantSpec


@OBSERVERS.register("absmax")
@dataclass(frozen=True)
class AbsMax(Observer):
    """[-t, t] with t = max(-min, max); formats without negative numbers take t = max."""

    name: ClassVar[str] = "absmax"
    statistic: ClassVar[StatisticKind] = "range"

    def rows(self, statistic: RangeStatistic, spec: QuantSpec) -> tuple[np.ndarray, np.ndarray]:
        low, high = outer_range(statistic)
        threshold = high if saturates_negative(spec) else np.maximum(-low, high)
        return -threshold, threshold
