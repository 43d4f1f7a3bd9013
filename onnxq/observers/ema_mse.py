"""The range with the smallest squared error, averaged over the samples instead of searched over all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from onnxq.observers.base import OBSERVERS, Observer
from onnxq.observers.moving import MovingAverage
from onnxq.observers.mse import Mse


@OBSERVERS.register("ema_mse")
@dataclass(frozen=True)
class EmaMse(MovingAverage):
    """Averages the range that `mse` finds for each sample; depends on the order of the samples."""

    name: ClassVar[str] = "ema_mse"

    def inner(self) -> Observer:
        return Mse()
