"""Histograms for the page: bins of equal width over what was seen, however it was counted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxq.json_file import JsonObject
from onnxq.observers.statistics import HistogramStatistic
from onnxq.page.numbers import short

BINS = 96
"""Bars of a histogram: what a phone still shows."""

MOST_VALUES = 1 << 18
"""Values of a tensor that are counted in one sample; of larger ones every n-th is."""


@dataclass
class Histogram:
    """Counts in BINS bins of equal width from `low` to `high`; they are widened by adding neighbours."""

    low: float
    high: float
    counts: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, most: int = MOST_VALUES) -> Histogram | None:
        """The finite ones of some values, about `most` of them; None where there are none."""
        flat = values.reshape(-1)
        flat = flat[:: max(1, flat.size // most)].astype(np.float64)
        finite = flat[np.isfinite(flat)]
        if not finite.size:
            return None
        low, high = float(finite.min()), float(finite.max())
        found = cls(low, high, np.zeros(BINS))
        found.counts += np.bincount(found._places(finite), minlength=BINS)
        return found

    @classmethod
    def of_statistic(cls, statistic: HistogramStatistic) -> Histogram | None:
        """What calibration has counted, all channels together."""
        if not statistic.rows or not (statistic.count > 0).any():
            return None
        seen = statistic.count > 0
        found = cls(float(statistic.minimum[seen].min()), float(statistic.maximum[seen].max()), np.zeros(BINS))
        for row in np.flatnonzero(seen):
            bins = statistic.bins(int(row))
            found._spread(bins.lower, bins.upper, bins.count)
        return found

    def add(self, other: Histogram) -> None:
        """Take in another one; the range grows to hold both."""
        old = self.low, self.high, self.counts
        self.low, self.high, self.counts = min(self.low, other.low), max(self.high, other.high), np.zeros(BINS)
        for low, high, counts in (old, (other.low, other.high, other.counts)):
            edges = np.linspace(low, high, BINS + 1)
            self._spread(edges[:-1], edges[1:], counts)

    def _spread(self, lower: np.ndarray, upper: np.ndarray, counts: np.ndarray) -> None:
        """Put counts into the bins that hold the middles of theirs; a wide one is shared out."""
        width = (self.high - self.low) / BINS
        wide = (upper - lower) / width if width > 0 else np.zeros(len(counts))
        pieces = np.clip(np.ceil(wide), 1, BINS).astype(np.int64)
        owner = np.repeat(np.arange(len(counts)), pieces)
        part = np.arange(len(owner)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        middle = lower[owner] + (upper - lower)[owner] * (part + 0.5) / pieces[owner]
        shares = counts[owner] / pieces[owner]
        self.counts += np.bincount(self._places(middle), weights=shares, minlength=BINS)

    def _places(self, values: np.ndarray) -> np.ndarray:
        """The bin of each value; the middle one where there is no range."""
        width = (self.high - self.low) / BINS
        if width <= 0:
            return np.full(len(values), BINS // 2)
        return np.clip((values - self.low) / width, 0, BINS - 1).astype(np.int64)

    def to_json(self) -> JsonObject:
        return {
            "low": short(self.low),
            "high": short(self.high),
            "counts": [max(1, round(count)) if count > 0 else 0 for count in self.counts.tolist()],
        }
