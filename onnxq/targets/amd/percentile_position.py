"""The smallest power-of-two scale that holds a given share of the values: the method Percentile of Vitis AI."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxq.observers.base import OBSERVERS
from onnxq.observers.percentile import Percentile
from onnxq.observers.positions import BoundedObserver, safe_position
from onnxq.observers.statistics import RangeStatistic, StatisticKind
from onnxq.types.spec import QuantSpec


@OBSERVERS.register("percentile_position")
@dataclass(frozen=True)
class PercentilePosition(BoundedObserver):
    """The smallest scale 2^-p that holds `percentile` of the values; percentile where scales are no powers of two."""

    name: ClassVar[str] = "percentile_position"
    statistic: ClassVar[StatisticKind] = "histogram"
    percentile: float = 99.99

    def __post_init__(self) -> None:
        super().__post_init__()
        Percentile(self.percentile)  # which checks it

    def rows(self, statistic: RangeStatistic, spec: QuantSpec) -> tuple[np.ndarray, np.ndarray]:
        low, high = Percentile(self.percentile).rows(statistic, spec)
        if not spec.power_of_two:
            return low, high
        return self.range_at(safe_position(low, high, spec), statistic, spec)
