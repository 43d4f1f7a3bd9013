"""What the channels of tensors hold on the samples: the smallest and the largest value of each, and some rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from onnxq.calibrate.channels_by_sample import ChannelsBySample
from onnxq.graph import Graph
from onnxq.observers import RangeStatistic
from onnxq.observers.statistics.range import Extent
from onnxq.ptq.equalization.variables import Layout
from onnxq.ptq.method import Samples, Task
from onnxq.runtime.collect import Engine, collect
from onnxq.runtime.feeds import Feed
from onnxq.runtime.tap import Tap, memory_groups
from onnxq.runtime.workers import available_cores, in_threads

MOST_ROWS = 128
"""Rows of a tensor that errors of layers are measured on."""


@dataclass(frozen=True)
class ChannelRanges:
    """Smallest and largest value along one axis of a tensor, with the class of each index.

    by_sample   number of a sample -> the largest magnitude of each index in it, where samples were looked at one by one
    """

    classes: np.ndarray
    low: np.ndarray
    high: np.ndarray
    by_sample: Mapping[int, np.ndarray] = field(default_factory=dict)

    @property
    def magnitude(self) -> np.ndarray:
        return np.asarray(np.maximum(np.abs(self.low), np.abs(self.high)))

    def joined(self, other: ChannelRanges) -> ChannelRanges:
        """The same tensor on the samples of both."""
        low, high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        return replace(self, low=low, high=high, by_sample={**self.by_sample, **other.by_sample})


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
    return _known(layouts, statistics)


def _known(layouts: Mapping[str, Layout], statistics: Mapping[str, RangeStatistic]) -> dict[str, ChannelRanges]:
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


def axes_of(graph: Graph, layouts: Mapping[str, Layout], tensors: Iterable[str]) -> dict[str, int]:
    """Tensor -> the axis of its channels, for those that are computed and have one."""
    along = {name: channel_axis(layouts[name]) for name in tensors if not graph.is_constant(name)}
    return {name: axis for name, axis in along.items() if axis is not None}


class ChannelLook:
    """Ranges of channels, and rows, of several parts of the samples: each sample is run once, when it is asked for.

    Ranges that the statistics of the task know of this graph take no run. `parts` are those whose rows will be asked
    for, as `sample_rows` draws them. The graph may be changed afterwards: what is asked for later is seen as it was.
    """

    def __init__(
        self,
        graph: Graph,
        layouts: Mapping[str, Layout],
        tensors: Iterable[str],
        axes: Mapping[str, int],
        task: Task,
        parts: Sequence[Samples],
    ) -> None:
        self._layouts, self._task, self._axes = layouts, task, axes
        self._along = axes_of(graph, layouts, tensors)
        known = {} if task.statistics is None else task.statistics.channels_of(graph)
        self._known = {name: known[name].seen for name, axis in self._along.items() if _is_of(known.get(name), axis)}
        unknown = [name for name in self._along if name not in self._known]
        self._wanted = list(dict.fromkeys([*unknown, *axes]))
        self._graph = graph.copy() if self._wanted else graph
        self._parts = [_Rows(part, axes, task.seed) for part in dict.fromkeys(parts)]
        self._extents: dict[int, dict[str, Extent]] = {}
        self._tap: tuple[list[str], Tap] | None = None

    def ranges(self, samples: Samples) -> dict[str, ChannelRanges]:
        """As `channel_ranges`."""
        self._look(samples)
        found = {name: RangeStatistic(axis) for name, axis in self._along.items()}
        magnitudes: dict[str, dict[int, np.ndarray]] = {name: {} for name in self._along}
        for number in samples.numbers:
            extents = {name: seen[number] for name, seen in self._known.items() if number in seen}
            for name, extent in (*extents.items(), *self._extents[number].items()):
                found[name].add(extent)
                magnitude = np.maximum(np.abs(extent.low), np.abs(extent.high))
                magnitudes[name][number] = np.where(extent.count > 0, magnitude, 0.0)
        known = _known(self._layouts, found)
        return {name: replace(seen, by_sample=magnitudes[name]) for name, seen in known.items()}

    def rows(self, samples: Samples) -> dict[str, np.ndarray]:
        """As `sample_rows`."""
        self._look(samples)
        part = next(part for part in self._parts if part.samples == samples)
        return part.all()

    def _look(self, samples: Samples) -> None:
        missing = tuple(number for number in samples.numbers if number not in self._extents)
        first = next(iter(samples), None)
        for number in missing:
            self._extents[number] = {}
        if first is None or not missing or not self._wanted:
            return
        passes = memory_groups(self._graph, self._wanted, first, self._task.memory_limit // available_cores())
        for turn, names in enumerate(passes):
            if self._tap is None or self._tap[0] != names:
                arranged = len(passes) > 1
                self._tap = names, Tap(self._graph, names, pinned=self._wanted, arranged=arranged, threads=1)
            tap = self._tap[1]
            todo = zip(missing, replace(samples, numbers=missing), strict=True)
            for done, (number, values, extents) in enumerate(in_threads(partial(self._of_sample, tap), todo)):
                self._task.progress("channels", turn * len(missing) + done, len(passes) * len(missing))
                self._extents[number].update(extents)
                for part in self._parts:
                    part.draw(number, values)

    def _of_sample(self, tap: Tap, numbered: tuple[int, Feed]) -> tuple[int, dict[str, np.ndarray], dict[str, Extent]]:
        """The values of a sample, and the extent of each tensor's channels."""
        number, feed = numbered
        found = tap.run(feed, f"sample {number}")
        values = {name: found[name] for name in found if name not in tap.flat}
        with np.errstate(invalid="ignore"):
            looks = {
                name: RangeStatistic(axis).look(values[name], number)
                for name, axis in self._along.items()
                if name in values and name not in self._known
            }
        return number, values, {name: extent for name, extent in looks.items() if extent is not None}


def _is_of(channels: ChannelsBySample | None, axis: int) -> bool:
    return channels is not None and channels.axis == axis


class _Rows:
    """Rows of tensors in a part of the samples; `axes` has the axis of the channels of each."""

    def __init__(self, samples: Samples, axes: Mapping[str, int], seed: int) -> None:
        self.samples = samples
        self._seed = seed
        self._axes = axes
        self._each = -(-MOST_ROWS // max(1, len(samples)))
        self._kept: dict[str, dict[int, np.ndarray]] = {name: {} for name in axes}

    def draw(self, number: int, values: Mapping[str, np.ndarray]) -> None:
        """Take some rows of one sample, as far as they are finite; of a sample that is no part, none."""
        if number not in self.samples.numbers:
            return
        # Of each sample the same rows, whichever samples were seen before.
        random = np.random.default_rng((self._seed, number))
        for name, axis in self._axes.items():
            if name in values:
                self._kept[name][number] = self._drawn(np.moveaxis(values[name], axis, -1), random)

    def all(self) -> dict[str, np.ndarray]:
        """Tensor -> the rows of all samples, in their order."""
        found = {}
        for name, kept in self._kept.items():
            parts = [kept[number] for number in sorted(kept)]
            if any(map(len, parts)):
                found[name] = np.concatenate(parts)
        return found

    def _drawn(self, rows: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Some of the rows [..., channels] in float32."""
        chosen = random.permutation(rows.size // max(1, rows.shape[-1]))[: self._each]
        drawn = rows[np.unravel_index(chosen, rows.shape[:-1])].astype(np.float32)
        return np.asarray(drawn[np.isfinite(drawn).all(axis=1)])


def unknown_lines(reads: Mapping[str, str], known: Collection[str]) -> list[str]:
    """A line for each node that reads a tensor of which no values are known; `reads` has the tensor of each node."""
    return [f"'{node}' reads '{name}', which has no finite values" for node, name in reads.items() if name not in known]
