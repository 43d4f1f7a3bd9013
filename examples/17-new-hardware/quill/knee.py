"""The observer: the scale with which a share of all magnitudes lies below the knee, where steps are fine."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxq.errors import ConfigError
from onnxq.observers import OBSERVERS, Observer
from onnxq.observers.base import histogram_of, outer_range

from .slope6 import KNEE, LAST


@OBSERVERS.register("knee")
@dataclass(frozen=True)
class Knee(Observer):
    """The range ends at LAST / KNEE times the quantile `share` of |x|, and never beyond the largest value."""

    name: ClassVar[str] = "knee"
    statistic: ClassVar[str] = "histogram"
    share: float = 0.9

    def __post_init__(self):
        if not 0.0 < self.share <= 1.0:
            raise ConfigError(f"share of observer 'knee' must be above 0 and at most 1, got {self.share:g}")

    def rows(self, statistic, spec):
        """Low and high of every row: one row for a tensor, or one for each channel."""
        histogram = histogram_of(statistic)
        low, high = outer_range(statistic)
        for row in range(histogram.rows):
            bins = histogram.bins(row).magnitudes()
            counted = np.cumsum(bins.count)
            quantile = float(bins.upper[np.searchsorted(counted, self.share * counted[-1])])
            reach = quantile * LAST / KNEE or max(-low[row], high[row])
            low[row], high[row] = max(low[row], -reach), min(high[row], reach)
        return low, high
