"""The range of a typical sample: moving averages of each sample's minimum and maximum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from onnxq.observers.base import OBSERVERS, Observer
from onnxq.observers.minmax import MinMax
from onnxq.observers.moving import MovingAverage


@OBSERVERS.register("ema_minmax")
@dataclass(frozen=True)
class EmaMinMax(MovingAverage):
    """Averages over about 1 / (1 - decay) samples; depends on the order of the samples, and shards do not merge."""

    name: ClassVar[str] = "ema_minmax"
    collects_for_format: ClassVar[bool] = False

    def inner(self) -> Observer:
        return MinMax()
