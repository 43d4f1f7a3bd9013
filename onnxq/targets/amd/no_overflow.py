"""The smallest power-of-two scale that clips nothing: the method No_OF of Vitis AI."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxq.observers.base import OBSERVERS, outer_range
from onnxq.observers.positions import BoundedObserver, safe_position
from onnxq.observers.statistics import RangeStatistic, StatisticKind
from onnxq.types.spec import QuantSpec


@OBSERVERS.register("no_overflow")
@dataclass(frozen=True)
class NoOverflow(BoundedObserver):
    """The smallest scale 2^-p that holds minimum and maximum; minmax where scales need not be powers of two.

    A signed format uses its lowest number, so int8 holds [-1, 0.99] with 2^-7, where minmax takes 2^-6.
    """

    name: ClassVar[str] = "no_overflow"
    statistic: ClassVar[StatisticKind] = "range"

    def rows(self, statistic: RangeStatistic, spec: QuantSpec) -> tuple[np.ndarray, np.ndarray]:
        if not spec.power_of_two:
            return outer_range(statistic)
        return self.range_at(safe_position(*outer_range(statistic), spec), statistic, spec)
