"""The range that holds a given share of a typical sample: moving averages of each sample's percentiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from onnxq.errors import ConfigError
from onnxq.observers.base import OBSERVERS, Observer
from onnxq.observers.moving import MovingAverage
from onnxq.observers.percentile import Percentile


@OBSERVERS.register("ema_quantile")
@dataclass(frozen=True)
class EmaQuantile(MovingAverage):
    """Averages the range that `percentile` finds for each sample, percentile = 100 * threshold.

    Symmetric formats take the quantile of |x|, asymmetric ones a quantile at each end.
    """

    name: ClassVar[str] = "ema_quantile"
    threshold: float = 0.99999

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.5 < self.threshold <= 1.0:
            raise ConfigError(
                f"threshold of observer 'ema_quantile' must be above 0.5 and at most 1, got {self.threshold:g}"
            )

    def inner(self) -> Observer:
        return Percentile(100.0 * self.threshold)
