"""What the channels of tensors hold on the samples: the smallest and the largest value of each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from onnxq.graph import Graph
from onnxq.observers import RangeStatistic
from onnxq.ptq.equalization.variables import Layout
from onnxq.ptq.method import Task
from onnxq.runtime.collect import Engine, collect


@dataclass(frozen=True)
class ChannelRanges:
    """Smallest and largest value along one axis of a tensor, with the class of each index."""

    classes: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def magnitude(self) -> np.ndarray:
        return np.asarray(np.maximum(np.abs(self.low), np.abs(self.high)))


def channel_axis(layout: Layout) -> int | None:
    """The axis along which classes change; None if there is none or more than one."""
    longer = [axis for axis, length in enumerate(layout.shape) if length > 1]
    return longer[0] if len(longer) == 1 else None


def channel_ranges(
    graph: Graph, layouts: dict[str, Layout], tensors: Iterable[str], task: Task, what: str
) -> dict[str, ChannelRanges]:
    """Ranges of the channels of those tensors that have channels along one axis and finite values."""
    axes = {name: channel_axis(layouts[name]) for name in tensors if not graph.is_constant(name)}
    statistics = {name: RangeStatistic(axis) for name, axis in axes.items() if axis is not None}
    if not statistics:
        return {}
    collect(
        graph,
        task.samples,
        {name: (statistic,) for name, statistic in statistics.items()},
        engine=Engine(memory_limit=task.memory_limit),
        progress=lambda done, total: task.progress(what, done, total),
    )
    return {
        name: ChannelRanges(layouts[name].ravel(), found.minimum.astype(np.float64), found.maximum.astype(np.float64))
        for name, found in statistics.items()
        if found.rows == layouts[name].size and (found.count > 0).all()
    }
