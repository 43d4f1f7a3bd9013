"""The power-of-two scale nearest to the one that entropy calibration asks for: the method Min_KL of Vitis AI."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxq.observers.base import OBSERVERS
from onnxq.observers.grid import covering_scale, need_integer_levels
from onnxq.observers.kl import Kl
from onnxq.observers.positions import BoundedObserver
from onnxq.observers.statistics import RangeStatistic, StatisticKind
from onnxq.types.spec import QuantSpec


@OBSERVERS.register("min_kl")
@dataclass(frozen=True)
class MinKl(BoundedObserver):
    """The scale 2^-p nearest to the scale of kl, p = round(-log2(scale)); kl where any scale is allowed.

    Rounding to the nearest can clip up to a factor of 1.41 more than kl would.
    """

    name: ClassVar[str] = "min_kl"
    statistic: ClassVar[StatisticKind] = "histogram"

    def rows(self, statistic: RangeStatistic, spec: QuantSpec) -> tuple[np.ndarray, np.ndarray]:
        need_integer_levels(self.name, spec)
        low, high = Kl().rows(statistic, spec)
        if not spec.power_of_two:
            return low, high
        position = np.rint(-np.log2(covering_scale(low, high, spec))).astype(np.int64)
        return self.range_at(position, statistic, spec)
