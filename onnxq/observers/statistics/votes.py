"""VotesStatistic: how many samples asked for each power-of-two scale."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self

import numpy as np

from onnxq.numerics.ranges import next_power_of_two, qparams_from_range
from onnxq.observers.statistics.per_sample import PerSampleStatistic, SampleObserver
from onnxq.observers.statistics.range import StatisticKind, stored
from onnxq.types.granularity import PerChannel, PerTensor
from onnxq.types.spec import QuantSpec

LOWEST_POSITION = -127
"""A position p stands for the scale 2^-p; float32 leaves -127 and above."""
HIGHEST_POSITION = 62
"""Scales are at least 2^-62, see onnxq.numerics.ranges."""
POSITIONS = HIGHEST_POSITION - LOWEST_POSITION + 1


class VotesStatistic(PerSampleStatistic):
    """A count for each row and position, one vote per sample; votes only add up, so order and shards do not matter."""

    kind: ClassVar[StatisticKind] = "votes"
    default_inner: ClassVar[str] = "minmax_floor"

    def __init__(
        self, axis: int | None = None, inner: SampleObserver | None = None, spec: QuantSpec | None = None
    ) -> None:
        super().__init__(axis, inner, spec)
        self.votes = np.zeros((0, POSITIONS), np.int64)

    def _take(self, low: np.ndarray, high: np.ndarray, valid: np.ndarray) -> None:
        if len(self.votes) == 0:
            self.votes = np.zeros((len(low), POSITIONS), np.int64)
        spec = (self.spec or QuantSpec()).replace(granularity=PerTensor() if self.axis is None else PerChannel(0))
        scale = next_power_of_two(np.atleast_1d(qparams_from_range(low, high, spec).scale))
        position = -np.log2(scale).astype(np.int64)
        self.votes[np.flatnonzero(valid), position[valid] - LOWEST_POSITION] += 1

    def winners(self) -> np.ndarray:
        """The position with the most votes in each row; of equals the smallest, whose larger scale clips least."""
        return np.asarray(self.votes.argmax(axis=1) + LOWEST_POSITION)

    def merge(self, other: Self) -> None:
        super().merge(other)
        if other.rows:
            self.votes = self.votes + other.votes if len(self.votes) else other.votes.copy()

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {**super().to_arrays(), "votes": self.votes}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        statistic = super().from_arrays(arrays)
        statistic.votes = stored(arrays, "votes", np.int64, (statistic.rows, POSITIONS))
        return statistic
