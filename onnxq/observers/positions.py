"""Positions of the binary point: the base of observers that choose a scale of 2^-p, and the search for the best p.

The search is that of chips with fixed-point arithmetic (Vitis AI): p starts at floor(log2(1 / step)), the largest
position with which no value is clipped, and every further one halves the step and clips more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from onnxq.errors import ConfigError
from onnxq.numerics.affine import fake_quantize
from onnxq.numerics.ranges import next_power_of_two, qparams_from_range
from onnxq.observers.base import Observer, histogram_of, outer_range
from onnxq.observers.grid import covering_scale, range_with_scale
from onnxq.observers.statistics import Bins, HistogramStatistic, RangeStatistic
from onnxq.observers.statistics.votes import HIGHEST_POSITION, LOWEST_POSITION
from onnxq.types.granularity import PerChannel
from onnxq.types.spec import QuantSpec

POINTS_PER_BIN = 4
"""A bin can be as wide as a step, and the error inside a step varies: its middle alone would mislead."""


@dataclass(frozen=True)
class PositionObserver(Observer):
    """A scale of 2^-p with p at most `max_position`, which is a limit of the chip."""

    max_position: int = 52

    def __post_init__(self) -> None:
        if not 0 <= self.max_position <= HIGHEST_POSITION:
            raise ConfigError(
                f"max_position of observer '{self.name}' must be 0 to {HIGHEST_POSITION}, got {self.max_position}"
            )

    def range_at(
        self, position: np.ndarray, statistic: RangeStatistic, spec: QuantSpec
    ) -> tuple[np.ndarray, np.ndarray]:
        """The range whose scale is 2^-p for each row's position, within the limits."""
        return range_with_scale(np.ldexp(1.0, -self.limited(position)), *outer_range(statistic), spec)

    def limited(self, position: np.ndarray) -> np.ndarray:
        """The nearest position that the limits allow."""
        return np.asarray(np.minimum(position, self.max_position))


@dataclass(frozen=True)
class BoundedObserver(PositionObserver):
    """A position of at least `min_position`, too: the scale is at most 2^-min_position, and what is beyond is clipped.

    Named first among the bases of an observer, so that its parameter comes behind theirs.
    """

    min_position: int = LOWEST_POSITION

    def __post_init__(self) -> None:
        super().__post_init__()
        if not LOWEST_POSITION - 1 <= self.min_position <= self.max_position:  # the last one is no limit at all
            raise ConfigError(
                f"min_position of observer '{self.name}' must be {LOWEST_POSITION - 1} to max_position "
                f"({self.max_position}), got {self.min_position}"
            )

    def limited(self, position: np.ndarray) -> np.ndarray:
        return np.asarray(np.clip(position, self.min_position, self.max_position))


@dataclass(frozen=True)
class SearchingObserver(PositionObserver):
    """Tries `candidates` positions, beginning with the first one that clips nothing."""

    candidates: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.candidates <= 32:
            raise ConfigError(f"candidates of observer '{self.name}' must be 1 to 32, got {self.candidates}")

    def best_range(self, statistic: HistogramStatistic, spec: QuantSpec) -> tuple[np.ndarray, np.ndarray]:
        """The range of the position with the smallest sum of squared errors in each row."""
        first = safe_position(*outer_range(statistic), spec)
        best = np.array(
            [_best_position(statistic, row, int(first[row]), self.candidates, spec) for row in range(statistic.rows)]
        )
        return self.range_at(best, statistic, spec)

    def shared_range(self, statistics: Sequence[RangeStatistic], spec: QuantSpec) -> tuple[np.ndarray, np.ndarray]:
        """The range of the best position for several tensors that share it, each one a whole tensor.

        Each counts by its squared error in relation to its energy, so that an average is not outvoted by what is
        averaged, which has more and larger values; and by 1 / sqrt(number of values), because the errors of many values
        partly cancel in what is made of them.
        """
        ends = [outer_range(statistic) for statistic in statistics]
        low, high = np.min([end[0] for end in ends], axis=0), np.max([end[1] for end in ends], axis=0)
        positions = _candidates(int(safe_position(low, high, spec)[0]), self.candidates)
        total = np.zeros(len(positions))
        for statistic in statistics:
            values, weights = _points(histogram_of(statistic).bins(0))
            energy = float(np.square(values, dtype=np.float64) @ weights)
            if energy > 0:
                errors = _squared_errors(values, weights, positions, float(low[0]), float(high[0]), spec)
                total += errors / (energy * np.sqrt(weights.sum()))
        scale = np.ldexp(1.0, -self.limited(positions[[np.argmin(total)]]))
        bottom, top = range_with_scale(scale, low, high, spec)
        return bottom.reshape(()), top.reshape(())


def safe_position(low: np.ndarray, high: np.ndarray, spec: QuantSpec) -> np.ndarray:
    """floor(log2(1 / step)): the largest position with which [low, high] is not clipped."""
    return position_of(next_power_of_two(covering_scale(low, high, spec)))


def position_of(scale: np.ndarray) -> np.ndarray:
    """p of scales that are exactly 2^-p."""
    return np.asarray(1 - np.frexp(scale)[1])


def _best_position(histogram: HistogramStatistic, row: int, first: int, candidates: int, spec: QuantSpec) -> int:
    """The best of `candidates` positions; of equals the smallest, which clips least."""
    if candidates == 1:
        return first
    positions = _candidates(first, candidates)
    low, high = (float(end[row]) for end in outer_range(histogram))
    return int(positions[np.argmin(_squared_errors(*_points(histogram.bins(row)), positions, low, high, spec))])


def _candidates(first: int, count: int) -> np.ndarray:
    return np.minimum(np.arange(first, first + count), HIGHEST_POSITION)


def _squared_errors(
    values: np.ndarray, weights: np.ndarray, positions: np.ndarray, low: float, high: float, spec: QuantSpec
) -> np.ndarray:
    """The sum of squared errors with each position, for values of [low, high]."""
    count = len(positions)
    ends = range_with_scale(np.ldexp(1.0, -positions), np.full(count, low), np.full(count, high), spec)
    # One row of a matrix for each candidate, all of them quantized at once.
    repeated = np.broadcast_to(values, (count, len(values)))
    quantized = fake_quantize(repeated, qparams_from_range(*ends, spec.replace(granularity=PerChannel(0))))
    difference = np.subtract(values, quantized, dtype=np.float64)
    return np.asarray((difference * difference) @ weights)


def _points(bins: Bins) -> tuple[np.ndarray, np.ndarray]:
    """Values that stand for the bins, evenly spaced in each, and how many values each stands for."""
    inside = (np.arange(POINTS_PER_BIN) + 0.5) / POINTS_PER_BIN
    values = bins.lower[:, None] + (bins.upper - bins.lower)[:, None] * inside
    return values.astype(np.float32).ravel(), np.repeat(bins.count / POINTS_PER_BIN, POINTS_PER_BIN)
