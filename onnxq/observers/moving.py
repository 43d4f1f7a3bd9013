"""MovingAverage: the base of observers that average the range of each sample."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxq.errors import ConfigError, UnsupportedError
from onnxq.observers.base import Observer
from onnxq.observers.statistics import EmaStatistic, RangeStatistic, StatisticKind
from onnxq.types.spec import QuantSpec


@dataclass(frozen=True)
class MovingAverage(Observer):
    """Averages over about 1 / (1 - decay) samples: average = decay * average + (1 - decay) * sample."""

    statistic: ClassVar[StatisticKind] = "ema"
    collects_for_format: ClassVar[bool] = True
    decay: float = 0.9

    def __post_init__(self) -> None:
        if not 0.0 <= self.decay < 1.0:
            raise ConfigError(f"decay of observer '{self.name}' must be at least 0 and below 1, got {self.decay:g}")

    @abstractmethod
    def inner(self) -> Observer:
        """The observer that gives the range of a sample."""

    def new_statistic(self, axis: int | None = None, spec: QuantSpec | None = None) -> RangeStatistic:
        return EmaStatistic(axis, self.decay, self.inner(), format_for_samples(self, spec))

    def rows(self, statistic: RangeStatistic, spec: QuantSpec) -> tuple[np.ndarray, np.ndarray]:
        assert isinstance(statistic, EmaStatistic)
        statistic.check_settings(str(self.inner()), spec)
        if statistic.decay != self.decay:
            raise UnsupportedError(
                f"this ema statistic was averaged with decay {statistic.decay:g}, not {self.decay:g}: collect it again"
            )
        return statistic.average_minimum, statistic.average_maximum


def format_for_samples(observer: Observer, spec: QuantSpec | None) -> QuantSpec | None:
    """The format in which the ranges of the samples are found, None where the observer does not look at it."""
    if not observer.collects_for_format:
        return None
    if spec is None:
        raise UnsupportedError(
            f"observer '{observer.name}' finds a range for each sample in the number format: give it as `spec`"
        )
    return spec
