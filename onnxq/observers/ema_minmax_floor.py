"""A power-of-two scale from averages: each sample's best position gives its range, and the ranges are averaged.

position = min(floor(log2(1 / step)), max_position),  step = the scale that the averaged range asks for
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxq.numerics.ranges import next_power_of_two
from onnxq.observers.base import OBSERVERS, Observer
from onnxq.observers.grid import covering_scale, range_with_scale
from onnxq.observers.minmax_floor import MinMaxFloor
from onnxq.observers.moving import MovingAverage
from onnxq.observers.positions import position_of
from onnxq.observers.statistics import RangeStatistic
from onnxq.types.spec import QuantSpec

NOISE = 1.0 - 2.0**-40
"""Averages of equal powers of two differ from them in the last bits, which must not double the scale."""


@OBSERVERS.register("ema_minmax_floor")
@dataclass(frozen=True)
class EmaMinMaxFloor(MovingAverage):
    """Averages the range that `minmax_floor` finds for each sample, and rounds the scale up to a power of two."""

    name: ClassVar[str] = "ema_minmax_floor"
    max_position: int = 52
    candidates: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        self.inner()  # whose parameters these are, and which refuses wrong ones

    def inner(self) -> Observer:
        return MinMaxFloor(self.max_position, self.candidates)

    def rows(self, statistic: RangeStatistic, spec: QuantSpec) -> tuple[np.ndarray, np.ndarray]:
        low, high = super().rows(statistic, spec)
        position = position_of(next_power_of_two(covering_scale(low, high, spec) * NOISE))
        return range_with_scale(np.ldexp(1.0, -position), low, high, spec)
