"""The start value of learned step sizes (Esser et al., "Learned step size quantization", 2020).

    scale = 2 * mean|x| / sqrt(qmax)

Asymmetric formats get the zero point qmin - round(min / scale). The mean is over all values, zeros included.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxq.observers.base import OBSERVERS, Observer, histogram_of, outer_range
from onnxq.observers.grid import need_integer_levels, range_with_scale
from onnxq.observers.moments import moments
from onnxq.observers.statistics import RangeStatistic, StatisticKind
from onnxq.types.spec import QuantSpec


@OBSERVERS.register("lsq")
@dataclass(frozen=True)
class Lsq(Observer):
    """The scale 2 * mean|x| / sqrt(qmax): a start for training rather than a range for wide formats."""

    name: ClassVar[str] = "lsq"
    statistic: ClassVar[StatisticKind] = "histogram"

    def rows(self, statistic: RangeStatistic, spec: QuantSpec) -> tuple[np.ndarray, np.ndarray]:
        need_integer_levels(self.name, spec)
        histogram = histogram_of(statistic)
        magnitude = np.array([moments(histogram.bins(row)).mean_magnitude for row in range(histogram.rows)])
        # int1 has no positive number; its one step down takes the place.
        scale = 2.0 * magnitude / math.sqrt(spec.qmax or -spec.qmin)
        return range_with_scale(scale, *outer_range(statistic), spec)
