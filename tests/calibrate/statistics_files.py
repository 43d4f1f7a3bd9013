"""Statistics files of made-up runs, whole or in shards, for the tests of the file and of merging."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxq.calibrate.identity import SampleHash
from onnxq.calibrate.statistics_file import Facts, StatisticsFile
from onnxq.observers import OBSERVERS, make_observer
from onnxq.observers.statistics import EmaStatistic, HistogramStatistic, RangeStatistic, StatisticKind
from onnxq.types import QuantSpec

MODEL = "ab" * 32

OBSERVER_OF_KIND = {observer.statistic: name for name, observer in OBSERVERS.items()}
"""Every kind of statistic -> an observer that collects it."""


def samples(count: int = 7) -> list[np.ndarray]:
    """Samples of different ranges; the third holds NaN and infinity, the last is the largest."""
    generator = np.random.default_rng(5)
    arrays = [generator.normal(0, 1 + i, (1, 3, 4)).astype(np.float32) for i in range(count)]
    arrays[2][0, 1, :2] = np.nan, np.inf
    return arrays


def statistics_of(arrays: Sequence[tuple[int, np.ndarray]]) -> dict[str, dict[str, RangeStatistic]]:
    """What a run over numbered samples sees of the two tensors of a model that squares its input."""
    collected: dict[str, dict[str, RangeStatistic]] = {
        "x": {"range": RangeStatistic(), "histogram axis 1": HistogramStatistic(1)},
        "square of x": {"histogram": HistogramStatistic()},
    }
    for index, array in arrays:
        for tensor, values in (("x", array), ("square of x", array * array)):
            for statistic in collected[tensor].values():
                statistic.update(values, index)
    return collected


def statistic_of(
    kind: StatisticKind, axis: int | None, arrays: Sequence[tuple[int, np.ndarray]] = ()
) -> RangeStatistic:
    """A statistic of any kind that has seen numbered samples."""
    statistic = make_observer(OBSERVER_OF_KIND[kind]).new_statistic(axis, QuantSpec("int8"))
    for index, array in arrays:
        statistic.update(array, index)
    return statistic


def run_file(number: int = 1, of: int = 1, count: int = 7, **changes: Any) -> StatisticsFile:
    """The file of a run over every `of`-th sample from `number` on."""
    arrays = [(i, array) for i, array in enumerate(samples(count)) if i % of == number - 1]
    hashed = SampleHash()
    for index, array in arrays:
        hashed.add(index, {"x": array})
    content: dict[str, Any] = {
        "model": MODEL,
        "samples": hashed.hexdigest(),
        "sample_count": len(arrays),
        "statistics": statistics_of(arrays),
        "shard": (number, of),
        "facts": Facts({"inner": "it lies inside a Loop"}, {"provider": "CPU", "onnxruntime": "1"}, ("body.x",)),
    }
    return StatisticsFile(**(content | changes))


def moving_average(*arrays: np.ndarray) -> EmaStatistic:
    statistic = EmaStatistic(decay=0.75)
    for index, array in enumerate(arrays):
        statistic.update(array, index)
    return statistic
