"""Ranges from a threshold on |x|: both ends are clipped at it, and never wider than the values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnxq.observers.base import histogram_of, outer_range, saturates_negative
from onnxq.observers.grid import levels_of_magnitude
from onnxq.observers.moments import nonzero
from onnxq.observers.statistics import Bins, RangeStatistic
from onnxq.types.spec import QuantSpec


def clip_magnitudes(
    statistic: RangeStatistic, spec: QuantSpec, threshold_of: Callable[[Bins, int], float]
) -> tuple[np.ndarray, np.ndarray]:
    """[max(min, -t), min(max, t)] of each row, t = threshold_of(bins of |x| without zero, levels for |x|).

    A row that holds nothing but zero keeps its range.
    """
    histogram = histogram_of(statistic)
    low, high = outer_range(statistic)
    for row in range(histogram.rows):
        levels = levels_of_magnitude(spec, one_sided=bool(low[row] >= 0 or high[row] <= 0))
        bins = nonzero(histogram.bins(row).magnitudes(positive_only=saturates_negative(spec)))
        if len(bins.count):
            threshold = threshold_of(bins, levels)
            low[row], high[row] = max(low[row], -threshold), min(high[row], threshold)
    return low, high
