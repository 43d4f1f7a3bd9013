"""The range whose rounding and clipping errors together have the smallest mean square.

The error is the expected one of the format's own levels over the histogram (`expected_error`), so it holds for every
format: integers of any width and rounding, power-of-two scales, fp8. The scale is searched by shrinking the whole range
in steps of 11 %, then of 2 % around the best, and at last at the vertex of a parabola through three of these. An
asymmetric format takes the best of all zero points with each scale, so that an outlier on one side costs the other side
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxq.numerics.ranges import qparams_from_range
from onnxq.observers.base import OBSERVERS, Observer, Ranges, histogram_of, outer_range, saturates_negative
from onnxq.observers.expected_error import ExpectedError, format_steps
from onnxq.observers.statistics import HistogramStatistic, RangeStatistic, StatisticKind
from onnxq.types.granularity import PerChannel
from onnxq.types.spec import QuantSpec

COARSE = tuple(2.0 ** (-np.arange(first, last) / 6) for first, last in ((0, 13), (13, 19), (19, 37), (37, 73)))
"""Twelve octaves; a later group is for the rare rows whose error has not risen much at the end of the one before."""
FINE_STEP = 2.0 ** (1 / 30)
FINE = FINE_STEP ** np.arange(-5, 6)
FAR_BEYOND = 4.0
"""Errors this much above the best are clipping for the most part: rounding costs less in a smaller range."""
POINTS_AT_ONCE = 1 << 16
JUST_BELOW = 1.0 - 2.0**-30
"""Keeps a width of whole steps from being rounded up to the next power of two; float32 does not see it."""


@OBSERVERS.register("mse")
@dataclass(frozen=True)
class Mse(Observer):
    """Minimises the mean square of x - fake_quantize(x)."""

    name: ClassVar[str] = "mse"
    statistic: ClassVar[StatisticKind] = "histogram"

    def rows(self, statistic: RangeStatistic, spec: QuantSpec) -> tuple[np.ndarray, np.ndarray]:
        histogram = histogram_of(statistic)
        return _best_ranges([(histogram, row) for row in range(histogram.rows)], *outer_range(statistic), spec)

    def ranges(self, statistics: Mapping[str, RangeStatistic], spec: QuantSpec) -> Ranges:
        """Small tensors are searched together: for each by itself, numpy's calls take longer than the work."""
        for tensor, statistic in statistics.items():
            self.check(statistic, tensor)
        whole = {tensor: statistic for tensor, statistic in statistics.items() if statistic.axis is None}
        if not spec.has_scale or len(whole) < 2:
            return super().ranges(statistics, spec)
        outer = [outer_range(statistic) for statistic in whole.values()]
        ends = np.concatenate([low for low, _ in outer]), np.concatenate([high for _, high in outer])
        rows = [(histogram_of(statistic), 0) for statistic in whole.values()]
        found = [end.astype(np.float64) for end in _best_ranges(rows, *ends, spec)]
        together = {tensor: (found[0][i, ...], found[1][i, ...]) for i, tensor in enumerate(whole)}
        others = {tensor: statistic for tensor, statistic in statistics.items() if tensor not in whole}
        return together | super().ranges(others, spec)


def _best_ranges(
    rows: Sequence[tuple[HistogramStatistic, int]], low: np.ndarray, high: np.ndarray, spec: QuantSpec
) -> tuple[np.ndarray, np.ndarray]:
    """The best range of each row inside its [low, high], which are overwritten."""
    by_row = spec.replace(granularity=PerChannel(0))
    size = _rows_at_once(spec)
    for start in range(0, len(rows), size):
        part = slice(start, min(start + size, len(rows)))
        errors = ExpectedError([histogram.bins(row) for histogram, row in rows[part]], spec)
        low[part], high[part] = _Search(errors, low[part], high[part], by_row).best()
    return low, high


def _rows_at_once(spec: QuantSpec) -> int:
    """Rows whose tables and points fit in the processor's cache; no row sees its neighbours."""
    points = len(COARSE[0]) * max(1, min(len(steps.boundary) for steps in format_steps(spec)))
    return int(np.clip(POINTS_AT_ONCE // points, 4, 16))


class _Search:
    """The best range of each row inside its [low, high]."""

    def __init__(self, errors: ExpectedError, low: np.ndarray, high: np.ndarray, spec: QuantSpec) -> None:
        self.errors, self.low, self.high, self.spec = errors, low, high, spec
        self.error = np.full(len(low), np.inf)
        self.ratio = np.ones(len(low))
        self.scale = np.ones(len(low))
        self.steps_below = np.zeros(len(low), np.int64)

    def best(self) -> tuple[np.ndarray, np.ndarray]:
        rows = np.arange(len(self.low))
        for ratios in COARSE:
            last = self._try(np.tile(ratios, (len(rows), 1)), rows)[:, -1]
            # What clipping costs only grows as a range shrinks, so nothing better follows far beyond the best.
            rows = rows[last <= FAR_BEYOND * self.error[rows]]
            if len(rows) == 0:
                break
        self._refine(np.arange(len(self.low)))
        return self._symmetric_range() if self.spec.symmetric else self._asymmetric_range()

    def _refine(self, rows: np.ndarray) -> None:
        ratios = np.minimum(self.ratio[:, None] * FINE, 1.0)
        errors = self._try(ratios, rows)
        middle = np.clip(np.argmin(errors, axis=1), 1, len(FINE) - 2)
        before, best, after = (errors[rows, middle + side] for side in (-1, 0, 1))
        bend = before - 2.0 * best + after
        vertex = 0.5 * (before - after) / np.where(bend > 0, bend, np.inf)
        self._try(np.minimum(ratios[rows, middle] * FINE_STEP ** np.clip(vertex, -1.0, 1.0), 1.0)[:, None], rows)

    def _try(self, ratios: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Keep what is better for each of the rows among the ratios of one line each; the errors of all."""
        ends = (self.low[rows, None] * ratios).ravel(), (self.high[rows, None] * ratios).ravel()
        scale = qparams_from_range(*ends, self.spec).scale.reshape(ratios.shape).astype(np.float64)
        error, below = self.errors.of(scale, rows)
        best = np.argmin(error, axis=1)
        line = np.arange(len(rows))
        better = error[line, best] < self.error[rows]
        line, best, kept = line[better], best[better], rows[better]
        self.error[kept], self.ratio[kept] = error[line, best], ratios[line, best]
        self.scale[kept], self.steps_below[kept] = scale[line, best], below[line, best]
        return error

    def _symmetric_range(self) -> tuple[np.ndarray, np.ndarray]:
        farthest = self.high if saturates_negative(self.spec) else np.maximum(-self.low, self.high)
        threshold = farthest * self.ratio
        return np.maximum(self.low, -threshold), np.minimum(self.high, threshold)

    def _asymmetric_range(self) -> tuple[np.ndarray, np.ndarray]:
        """The range inside [low, high] that `qparams_from_range` turns into the scale and zero point found."""
        width = (self.spec.qmax - self.spec.qmin) * self.scale * JUST_BELOW
        whole = (self.ratio == 1.0) | (width >= self.high - self.low)
        low = np.maximum(np.minimum(-self.steps_below * self.scale, self.high - width), self.low)
        return np.where(whole, self.low, low), np.where(whole, self.high, np.clip(low + width, 0.0, self.high))
