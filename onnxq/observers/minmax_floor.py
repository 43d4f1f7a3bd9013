"""The power-of-two scale with the smallest squared error: MQBench's observer for fixed-point chips.

    step = max(min / qmin, max / qmax)
    p    = the best of p0 .. p0 + candidates - 1 by the sum of (x - fake_quantize(x))^2,  p0 = floor(log2(1 / step))
    scale = 2^-min(p, max_position)

Asymmetric formats have step = (max - min) / (qmax - qmin), fp8 has step = max|x| / largest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxq.observers.base import OBSERVERS, histogram_of
from onnxq.observers.positions import SearchingObserver
from onnxq.observers.statistics import RangeStatistic, StatisticKind
from onnxq.types.spec import QuantSpec


@OBSERVERS.register("minmax_floor")
@dataclass(frozen=True)
class MinMaxFloor(SearchingObserver):
    """A scale 2^-p: the smallest that clips nothing, or one of the next, whichever has the least squared error.

    Any format gets a power of two, not only those that ask for one. 1 candidate is what MQBench does for the inputs of
    a network.
    """

    name: ClassVar[str] = "minmax_floor"
    statistic: ClassVar[StatisticKind] = "histogram"

    def rows(self, statistic: RangeStatistic, spec: QuantSpec) -> tuple[np.ndarray, np.ndarray]:
        return self.best_range(histogram_of(statistic), spec)
