"""The range whose rounding and clipping errors together have the smallest mean square.

The expected error is taken over the histogram with the arithmetic that will be used on the chip (`fake_quantize`), so
it holds for every format: integers of any width, power-of-two scales, fp8. Ranges are searched by shrinking the whole
range: first in steps of 2^(-1/4) over twelve octaves, then in steps of 2 % around the best. An asymmetric format moves
both ends, together and one after the other, so that an outlier on one side costs the other side nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxq.numerics.affine import fake_quantize
from onnxq.numerics.ranges import qparams_from_range
from onnxq.observers.base import OBSERVERS, Observer, histogram_of, outer_range, saturates_negative
from onnxq.observers.statistics import Bins, HistogramStatistic, RangeStatistic, StatisticKind
from onnxq.types.granularity import PerChannel
from onnxq.types.spec import QuantSpec

COARSE = tuple(2.0 ** (-step / 4) for step in range(49))
FINE = tuple(2.0 ** (step / 32) for step in range(-8, 9))
FAR_BEYOND = 16.0
POINTS_PER_BIN = 4
"""A bin can be as wide as a quantization step, and the error inside a step varies: its middle alone would mislead."""
POINTS_AT_ONCE = 1 << 21


@OBSERVERS.register("mse")
@dataclass(frozen=True)
class Mse(Observer):
    """Minimises the mean square of x - fake_quantize(x)."""

    name: ClassVar[str] = "mse"
    statistic: ClassVar[StatisticKind] = "histogram"

    def rows(self, statistic: RangeStatistic, spec: QuantSpec) -> tuple[np.ndarray, np.ndarray]:
        low, high = outer_range(statistic)
        for rows, bins in _groups(histogram_of(statistic)):
            low[rows], high[rows] = _search(bins, low[rows], high[rows], spec)
        return low, high


def _groups(histogram: HistogramStatistic) -> Iterator[tuple[slice, list[Bins]]]:
    """Consecutive rows whose points fit in memory together."""
    occupied = np.bincount(histogram.keys >> 16, minlength=histogram.rows)
    size = max(1, POINTS_AT_ONCE // (int(occupied.max()) * POINTS_PER_BIN))
    for start in range(0, histogram.rows, size):
        rows = slice(start, min(start + size, histogram.rows))
        yield rows, [histogram.bins(row) for row in range(rows.start, rows.stop)]


class _Points:
    """Rows of values that stand for histograms, `per_bin` evenly spaced ones in each bin, and the error of ranges."""

    def __init__(self, rows: list[Bins], per_bin: int, spec: QuantSpec) -> None:
        width = max(len(bins.count) for bins in rows)
        values = np.zeros((len(rows), width, per_bin), np.float32)
        weights = np.zeros((len(rows), width, per_bin), np.float64)
        inside = (np.arange(per_bin) + 0.5) / per_bin
        for i, bins in enumerate(rows):
            filled = len(bins.count)
            values[i, :filled] = bins.lower[:, None] + (bins.upper - bins.lower)[:, None] * inside
            weights[i, :filled] = bins.count[:, None] / per_bin
        self.values = values.reshape(len(rows), -1)
        self.weights = weights.reshape(len(rows), -1)
        self.spec = spec.replace(granularity=PerChannel(0))

    def error(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Sum of squared errors of each row when it is quantized to its range."""
        quantized = fake_quantize(self.values, qparams_from_range(low, high, self.spec))
        difference = np.subtract(self.values, quantized, dtype=np.float64)
        return np.asarray((difference * difference * self.weights).sum(axis=1))


def _search(
    rows: list[Bins], minimum: np.ndarray, maximum: np.ndarray, spec: QuantSpec
) -> tuple[np.ndarray, np.ndarray]:
    """The best range of each row inside its [minimum, maximum]."""
    coarse, fine = _Points(rows, 1, spec), _Points(rows, POINTS_PER_BIN, spec)
    limit = (minimum, maximum)
    best = _line_search(coarse, limit, limit, COARSE, "both")
    one_sided = bool(np.all(minimum >= 0) or np.all(maximum <= 0))
    if spec.symmetric or one_sided:
        low, high = _line_search(fine, best, limit, FINE, "both")
        if not spec.symmetric:
            return low, high
        threshold = high if saturates_negative(spec) else np.maximum(-low, high)
        return np.maximum(minimum, -threshold), np.minimum(maximum, threshold)
    for first, second in (("low", "high"), ("high", "low")):
        other = _line_search(coarse, limit, limit, COARSE, first)
        other = _line_search(coarse, other, limit, COARSE, second)
        better = coarse.error(*other) < coarse.error(*best)
        best = np.where(better, other[0], best[0]), np.where(better, other[1], best[1])
    for end in ("high", "low", "high"):
        best = _line_search(fine, best, limit, FINE, end)
    return best


def _line_search(
    points: _Points,
    start: tuple[np.ndarray, np.ndarray],
    limit: tuple[np.ndarray, np.ndarray],
    ratios: tuple[float, ...],
    move: str,
) -> tuple[np.ndarray, np.ndarray]:
    """The start range, or for each row the better one with the moved ends multiplied by one of the ratios."""
    best_low, best_high = start
    best_error = points.error(best_low, best_high)
    for ratio in ratios:
        low = start[0] if move == "high" else np.maximum(start[0] * ratio, limit[0])
        high = start[1] if move == "low" else np.minimum(start[1] * ratio, limit[1])
        error = points.error(low, high)
        better = error < best_error
        best_low, best_high = np.where(better, low, best_low), np.where(better, high, best_high)
        best_error = np.where(better, error, best_error)
        # What clipping costs only grows as a range shrinks, so nothing better follows far beyond the best.
        if ratio < 1.0 and ratios is COARSE and np.all(error > FAR_BEYOND * best_error):
            break
    return best_low, best_high
