"""What a few tensors hold in the float model: all values, those of each channel, and which sample sets the range."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxq.graph import Graph
from onnxq.observers import RangeStatistic
from onnxq.observers.statistics import Bins, HistogramStatistic
from onnxq.runtime import Dataset, open_dataset
from onnxq.runtime.collect import Engine, collect

MOST_SAMPLES = 128
"""Samples that are looked at: the largest values of many more would not be found in a histogram's tail either."""


@dataclass(frozen=True, eq=False)
class Channels:
    """Range of each index along an axis."""

    axis: int
    low: np.ndarray
    high: np.ndarray

    @property
    def magnitude(self) -> np.ndarray:
        return np.asarray(np.maximum(np.abs(self.low), np.abs(self.high)), np.float64)


@dataclass(frozen=True, eq=False)
class Seen:
    """What a tensor holds; `peaks` has the two samples with the largest magnitudes."""

    low: float
    high: float
    bins: Bins
    peaks: tuple[tuple[float, int], ...]
    channels: Channels | None

    @property
    def magnitude(self) -> float:
        return max(abs(self.low), abs(self.high))

    def within(self, fraction: float) -> tuple[float, float]:
        """The range that all but this fraction of the values lie in, as they lie around zero."""
        order = np.argsort(np.abs(self.bins.middle), kind="stable")
        counted = np.cumsum(self.bins.count[order])
        inside = order[: int(np.searchsorted(counted, (1.0 - fraction) * counted[-1])) + 1]
        return float(self.bins.lower[inside].min()), float(self.bins.upper[inside].max())

    def median_magnitude(self) -> float:
        low, high = self.within(0.5)
        return max(abs(low), abs(high))


class _ChannelRange(RangeStatistic):
    """Ranges along an axis of a declared shape; values of another rank have no such axis, and are passed over."""

    def __init__(self, axis: int, rank: int) -> None:
        super().__init__(axis)
        self._rank = rank

    def look(self, array: np.ndarray, sample: int = 0, *, batch: int = 1) -> Any:
        return super().look(array, sample, batch=batch) if np.ndim(array) == self._rank else None


def channel_axis(graph: Graph, tensor: str) -> int | None:
    """Axis 1 of images, the last one of anything else; None where its length is not known."""
    shape = graph.shape(tensor)
    if shape is None or len(shape) < 2:
        return None
    axis = 1 if len(shape) >= 4 else len(shape) - 1
    return axis if isinstance(shape[axis], int) and shape[axis] != 1 else None


def look_at(
    graph: Graph, tensors: Iterable[str], dataset: Dataset, engine: Engine | None, *, most: int = MOST_SAMPLES
) -> dict[str, Seen]:
    """The computed tensors among these over the first samples; what no run returns or no sample reaches is left out."""
    wanted = [name for name in dict.fromkeys(tensors) if not graph.is_constant(name)]
    if not wanted:
        return {}
    whole = {name: HistogramStatistic() for name in wanted}
    inner = {id(scope): scope for scope in graph.scopes()[1:]}
    axes = {
        name: axis
        for name in wanted
        if (axis := channel_axis(graph, name)) is not None and id(graph.home_of(name)) not in inner
    }
    by_channel = {name: _ChannelRange(axis, len(graph.shape(name) or ())) for name, axis in axes.items()}
    statistics: Mapping[str, list[RangeStatistic]] = {
        name: [whole[name], *([by_channel[name]] if name in by_channel else [])] for name in wanted
    }
    first = open_dataset(dataset, dataset.inputs, limit=min(most, dataset.limit or most))
    collect(graph, first, statistics, engine=engine)
    found = {}
    for name, statistic in whole.items():
        if not statistic.rows or not statistic.count[0]:
            continue
        channels = None
        each = by_channel.get(name)
        if each is not None and each.rows and bool((each.count > 0).all()):
            channels = Channels(axes[name], each.minimum, each.maximum)
        found[name] = Seen(
            float(statistic.minimum[0]), float(statistic.maximum[0]), statistic.bins(), statistic.peaks, channels
        )
    return found
