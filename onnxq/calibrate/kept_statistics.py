"""Statistics of float graphs that calibration and several steps ask for, each collected once: of some samples, and of
all.

Those of all samples are those of the two parts of them, merged, which is bit for bit what one run over all would have
found. Histograms are collected where a range would do, so that any observer can be tried on them. What steps can tell
of a graph without a run, they put here (`know`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from onnxq.calibrate.channels_by_sample import Channels, WantedChannels, empty_channels
from onnxq.calibrate.gather import Gathered, activation_leaders, gather, wanted_statistics
from onnxq.graph import Graph
from onnxq.observers import RangeStatistic, statistic_from_arrays
from onnxq.runtime.collect import Engine, Progress
from onnxq.runtime.feeds import Feed
from onnxq.runtime.kept_tap import KeptTap
from onnxq.runtime.samples import Selection
from onnxq.types import Placement, QuantPlan

MOST_GRAPHS = 2
"""A model and one that is compared with it."""


class Part(Selection, Protocol):
    """Some feeds of a dataset that can be read again and again."""

    def __iter__(self) -> Iterator[Feed]: ...


@dataclass
class _OfGraph:
    """What is kept of one graph: the tensors with their kinds of statistics, and both parts as far as they are known.

    Both are collected for the `leaders` that were asked for first; who asks for some of them later gets the same.
    `others_told` tells of the other samples what somebody knows without a run. The same passes fill `channels`; `tap`
    is the session of the first part, for the second.
    """

    graph: Graph
    leaders: Sequence[Placement]
    kinds: Mapping[str, frozenset[str]]
    parts: dict[bool, Gathered] = field(default_factory=dict)
    whole: Gathered | None = None
    others_told: Callable[[], Gathered] | None = None
    channels: Channels = field(default_factory=dict)
    tap: KeptTap = field(default_factory=KeptTap)


class KeptStatistics:
    """Statistics on the samples `some` and on `others`, which are all samples together.

    `channels` says of which tensors calibration also looks at each channel, for steps that will ask (`channels_of`).
    """

    def __init__(
        self, some: Part, others: Part, engine: Engine | None, channels: WantedChannels = lambda graph, plan: {}
    ) -> None:
        self._samples = {True: some, False: others}
        self._engine = engine
        self._wanted_channels = channels
        self._kept: list[_OfGraph] = []
        self._channels: list[tuple[Graph, Channels]] = []

    @property
    def others(self) -> Part:
        """The samples that are not among `some`."""
        return self._samples[False]

    def on_some(self, graph: Graph, leaders: Sequence[Placement], *, reusable: bool = True) -> Gathered | None:
        """What observers need to see on `some`; None where it depends on the order of all samples.

        `reusable` asks for what other observers than those of the leaders need, too.
        """
        kept = self._of(graph, leaders, reusable)
        return None if kept is None else self._part(kept, some=True)

    def on_others(self, graph: Graph, leaders: Sequence[Placement], *, reusable: bool = True) -> Gathered | None:
        """The same on the samples that are not among `some`."""
        kept = self._of(graph, leaders, reusable)
        return None if kept is None else self._part(kept, some=False)

    def on_all(
        self,
        graph: Graph,
        leaders: Sequence[Placement],
        progress: Progress | None = None,
        *,
        reusable: bool = True,
    ) -> Gathered | None:
        """The same on all samples."""
        kept = self._of(graph, leaders, reusable)
        if kept is None:
            return None
        if kept.whole is None:
            kept.whole = _merged(*(self._part(kept, some=some, progress=progress) for some in (True, False)))
        return kept.whole

    def know(
        self,
        graph: Graph,
        leaders: Sequence[Placement],
        some: Gathered,
        others: Callable[[], Gathered],
        channels: Channels,
    ) -> None:
        """Take what the observers of the leaders would see of a graph, on `some` and on the other samples."""
        self._keep_channels(graph, channels)
        kinds = {tensor: frozenset(found) for tensor, found in wanted_statistics(leaders).items()}
        self._keep(_OfGraph(graph, leaders, kinds, {True: some}, others_told=others))

    def of_calibration(self, graph: Graph, plan: QuantPlan, progress: Progress | None = None) -> Gathered | None:
        """The same in the place of what calibration collects; None also where feeds hold several samples.

        Statistics remember which samples had their largest values, and numbers of feeds are not those of samples then.
        """
        feeds, leaders = sum(len(part.numbers) for part in self._samples.values()), activation_leaders(plan)
        kept = self._of(graph, leaders, reusable=True)
        if kept is None:
            return None
        if not kept.parts:
            kept.channels = empty_channels(graph, self._wanted_channels(graph, plan), feeds)
        found = self.on_all(graph, leaders, progress)
        if found is None or found.samples != feeds:
            return None
        self._keep_channels(graph, kept.channels)
        return found

    def channels_of(self, graph: Graph) -> Channels:
        """What was seen of the channels of a graph's tensors in each sample, where somebody has looked or told."""
        return next((channels for known, channels in self._channels if known is graph), {})

    def _keep_channels(self, graph: Graph, channels: Channels) -> None:
        self._channels = [*self._channels[-MOST_GRAPHS + 1 :], (graph, channels)]

    def _of(self, graph: Graph, leaders: Sequence[Placement], reusable: bool) -> _OfGraph | None:
        wanted = wanted_statistics(leaders, reusable=True)
        if any(statistic.ordered for kinds in wanted.values() for statistic in kinds.values()):
            return None
        kinds = {tensor: frozenset(found) for tensor, found in wanted.items()}
        enough = [kinds]
        if not reusable:
            enough.append({tensor: frozenset(found) for tensor, found in wanted_statistics(leaders).items()})
        for kept in self._kept:
            if kept.graph is graph and any(_has(kept, needed) for needed in enough):
                self._kept.remove(kept)
                self._kept.append(kept)
                return kept
        return self._keep(_OfGraph(graph, leaders, kinds))

    def _keep(self, kept: _OfGraph) -> _OfGraph:
        self._kept = [*self._kept[-MOST_GRAPHS + 1 :], kept]
        return kept

    def _part(self, kept: _OfGraph, *, some: bool, progress: Progress | None = None) -> Gathered:
        if not some and kept.others_told is not None and some not in kept.parts:
            kept.parts[some], kept.others_told = kept.others_told(), None
        if some not in kept.parts:
            before = 0 if some else len(self._samples[True].numbers)
            whole = sum(len(part.numbers) for part in self._samples.values())
            kept.parts[some] = gather(
                kept.graph,
                kept.leaders,
                self._samples[some],
                engine=self._engine,
                reusable=True,
                progress=None if progress is None else lambda done, _: progress(before + done, whole),
                beside=kept.channels,
                kept=kept.tap,
            )
            if len(kept.parts) == len(self._samples):
                kept.tap = KeptTap()  # nobody looks at this graph again
        return kept.parts[some]


def _has(kept: _OfGraph, kinds: Mapping[str, frozenset[str]]) -> bool:
    return all(found <= kept.kinds.get(tensor, frozenset()) for tensor, found in kinds.items())


def _merged(one: Gathered, other: Gathered) -> Gathered:
    statistics: dict[str, dict[str, RangeStatistic]] = {}
    for tensor, kinds in one.statistics.items():
        statistics[tensor] = {}
        for key, held in kinds.items():
            whole = statistic_from_arrays(held.to_arrays())
            whole.merge(other.statistics[tensor][key])
            statistics[tensor][key] = whole
    return Gathered(
        statistics,
        one.samples + other.samples,
        max(one.passes, other.passes),
        one.seconds + other.seconds,
        {**one.unreachable, **other.unreachable},
        tuple(dict.fromkeys((*one.notes, *other.notes))),
        one.beyond,
    )
