"""The power-of-two scale that most samples ask for: each sample votes for its own best position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxq.observers.base import OBSERVERS, Observer
from onnxq.observers.minmax_floor import MinMaxFloor
from onnxq.observers.moving import format_for_samples
from onnxq.observers.positions import SearchingObserver
from onnxq.observers.statistics import RangeStatistic, StatisticKind, VotesStatistic
from onnxq.types.spec import QuantSpec


@OBSERVERS.register("pot_mode")
@dataclass(frozen=True)
class PotMode(SearchingObserver):
    """The position that `minmax_floor` finds for the most samples; of equals the larger scale, which clips least."""

    name: ClassVar[str] = "pot_mode"
    statistic: ClassVar[StatisticKind] = "votes"
    collects_for_format: ClassVar[bool] = True

    def inner(self) -> Observer:
        return MinMaxFloor(self.max_position, self.candidates)

    def new_statistic(self, axis: int | None = None, spec: QuantSpec | None = None) -> RangeStatistic:
        return VotesStatistic(axis, self.inner(), format_for_samples(self, spec))

    def rows(self, statistic: RangeStatistic, spec: QuantSpec) -> tuple[np.ndarray, np.ndarray]:
        assert isinstance(statistic, VotesStatistic)
        statistic.check_settings(str(self.inner()), spec)
        return self.range_at(statistic.winners(), statistic, spec)
