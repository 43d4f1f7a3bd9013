"""The start value of LSQ+ (Bhalgat et al., "LSQ+: improving low-bit quantization", 2020).

    symmetric, signed      scale = max(|mean - 3 sigma|, |mean + 3 sigma|) / 2^(bits - 1)
    symmetric, qmin = 0    scale = max(|mean - 3 sigma|, |mean + 3 sigma|) / 2^bits
    asymmetric             scale = width of [mean - 3 sigma, mean + 3 sigma], 0 included, / 2^bits

2^bits is the number of levels, qmax - qmin + 1; the signed format has half of them on each side of zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxq.observers.base import OBSERVERS, Observer, histogram_of
from onnxq.observers.grid import need_integer_levels, range_with_scale
from onnxq.observers.moments import moments
from onnxq.observers.statistics import RangeStatistic, StatisticKind
from onnxq.types.spec import QuantSpec

SIGMAS = 3.0


@OBSERVERS.register("lsq_plus")
@dataclass(frozen=True)
class LsqPlus(Observer):
    """Three standard deviations around the mean, divided by the number of levels."""

    name: ClassVar[str] = "lsq_plus"
    statistic: ClassVar[StatisticKind] = "histogram"

    def rows(self, statistic: RangeStatistic, spec: QuantSpec) -> tuple[np.ndarray, np.ndarray]:
        need_integer_levels(self.name, spec)
        histogram = histogram_of(statistic)
        found = [moments(histogram.bins(row)) for row in range(histogram.rows)]
        mean, reach = (np.array(part) for part in zip(*((m.mean, SIGMAS * m.deviation) for m in found), strict=True))
        low, high = np.minimum(mean - reach, 0.0), np.maximum(mean + reach, 0.0)
        if spec.symmetric:
            scale = np.maximum(-low, high) / max(-spec.qmin, spec.qmax + 1)
        else:
            scale = (high - low) / (spec.qmax - spec.qmin + 1)
        return range_with_scale(scale, low, high, spec)
