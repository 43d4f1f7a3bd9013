"""What the channels of tensors hold on the samples: the smallest and the largest value of each, and some rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from onnxq.graph import Graph
from onnxq.observers import RangeStatistic
from onnxq.ptq.equalization.variables import Layout
from onnxq.ptq.method import Task
from onnxq.runtime.collect import Engine, collect
from onnxq.runtime.tap import Tap, memory_groups
from onnxq.runtime.workers import available_cores, in_threads

MOST_ROWS = 128
"""Rows of a tensor that errors of layers are measured on."""


@dataclass(frozen=True)
class ChannelRanges:
    """Smallest and largest value along one axis of a tensor, with the class of each index."""

    classes: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def magnitude(self) -> np.ndarray:
        return np.asarray(np.maximum(np.abs(self.low), np.abs(self.high)))

    def joined(self, other: ChannelRanges) -> ChannelRanges:
        """The same tensor on the samples of both."""
        return replace(self, low=np.minimum(self.low, other.low), high=np.maximum(self.high, other.high))


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


def sample_rows(graph: Graph, axes: Mapping[str, int], task: Task, what: str) -> dict[str, np.ndarray]:
    """Tensor -> float32 rows [positions, channels], drawn from all samples alike; `axes` has the axis of the channels.

    Rows that are not finite are left out, and so are tensors without any rows, or that no run can return.
    """
    first = next(iter(task.samples), None)
    if first is None or not axes:
        return {}
    each = -(-MOST_ROWS // len(task.samples))
    kept: dict[str, list[np.ndarray]] = {name: [] for name in axes}
    passes = memory_groups(graph, list(axes), first, task.memory_limit // available_cores())
    for number, names in enumerate(passes):
        # All sessions pin the tensors of all passes, so that the limit of memory changes no bit.
        tap = Tap(graph, names, pinned=axes, arranged=len(passes) > 1, threads=1)
        random = np.random.default_rng(task.seed)
        for done, found in enumerate(in_threads(tap.run, task.samples)):
            task.progress(what, number * len(task.samples) + done, len(passes) * len(task.samples))
            for name, values in found.items():
                if name not in tap.flat:
                    rows = np.moveaxis(values, axes[name], -1).reshape(-1, values.shape[axes[name]])
                    chosen = rows[random.permutation(len(rows))[:each]].astype(np.float32)
                    kept[name].append(chosen[np.isfinite(chosen).all(axis=1)])
    return {name: np.concatenate(parts) for name, parts in kept.items() if any(map(len, parts))}


def unknown_lines(reads: Mapping[str, str], known: Collection[str]) -> list[str]:
    """A line for each node that reads a tensor of which no values are known; `reads` has the tensor of each node."""
    return [f"'{node}' reads '{name}', which has no finite values" for node, name in reads.items() if name not in known]
