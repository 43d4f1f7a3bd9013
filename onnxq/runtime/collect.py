"""Statistics of any tensors of a float graph over data: fast, in bounded memory, and with the same bits each time.

Every core runs its own samples through one shared session of single-threaded kernels, and looks at what it ran while
the others run theirs. What leaves the graph is as little as the statistics allow: three numbers where only a range is
wanted, otherwise values in memory that is used again for the next sample.

Where one run would hold too much, the tensors are divided over several passes through the data, each with its own
session: onnxruntime keeps every output until a run ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from functools import partial

from onnxq.errors import ConfigError, DataError
from onnxq.graph import Graph
from onnxq.graph.write import weight_bytes
from onnxq.observers import RangeStatistic
from onnxq.runtime.collect_pass import CollectPass, Statistics, TooLarge
from onnxq.runtime.dataset import Dataset
from onnxq.runtime.feeds import Feed
from onnxq.runtime.inputs import InputWatch
from onnxq.runtime.kept_tap import KeptTap
from onnxq.runtime.pinned import pinned_beside
from onnxq.runtime.reduce import reducible
from onnxq.runtime.samples import Sample, Samples, Shard
from onnxq.runtime.session import CPU, Optimize, find_provider
from onnxq.runtime.tap import completed_sizes, default_memory_limit, divide, known_sizes, optimization_of
from onnxq.runtime.workers import SampleQueue, available_cores

ARRANGING_SECONDS, ARRANGING_PER_BYTE, ARRANGING_PER_NODE = 0.05, 2e-9, 1.5e-4
"""What it costs to arrange a session: a part for every model, one for each byte of weights, and one for each node."""

SAVED_PER_BYTE = 7e-11
SAVED_PER_TENSOR: Mapping[Optimize, float] = {"all": 5e-6, "basic": 1e-6, "none": 1e-6}
"""What an arranged session saves in a run: for each byte that is pinned, which an ordinary session keeps and may copy,
and for each pinned tensor, as shapes do not always tell the bytes; less without the layouts of full optimization."""

MANY_OPEN_SIZES = 64
"""Pinned tensors of which shapes do not tell the size. With more of them, nobody knows what a run would keep."""

Progress = Callable[[int, int | None], None]
"""Called with the number of runs done and, where it is known, the number of runs to do."""


@dataclass(frozen=True)
class Engine:
    """How to run: what changes time and memory.

    workers        samples that are run at the same time, one core each; every core by default, 2 for other providers
    memory_limit   bytes of observed tensors that all workers may hold together; a quarter of the free memory by default
    provider       onnxruntime's execution provider; unlike the others it can change results, as its kernels may round
                   differently
    """

    workers: int | None = None
    memory_limit: int | None = None
    provider: str | None = None

    def __post_init__(self) -> None:
        for name, value in (("workers", self.workers), ("memory_limit", self.memory_limit)):
            if value is not None and value < 1:
                raise ConfigError(f"{name} must be at least 1, got {value}")

    def threads(self) -> int:
        """How many samples are run at the same time."""
        if self.workers is not None:
            return self.workers
        # On a device two are enough: one is run while the other is looked at.
        return available_cores() if find_provider(self.provider) == CPU else 2

    def bytes_of_a_run(self) -> int:
        """What one run may hold of observed tensors."""
        limit = default_memory_limit() if self.memory_limit is None else self.memory_limit
        return limit // self.threads()


@dataclass(frozen=True)
class CollectReport:
    """What looking at the tensors took; `unreachable` maps tensors that no run can return to the reason."""

    samples: int = 0
    seconds: float = 0.0
    passes: int = 0
    unreachable: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Journal:
    """For a caller that keeps what was seen so far.

    Samples that a statistic holds already (`statistic.samples`) are skipped for it.

    seen          called once with every sample, in order, before it is run; also with samples that are skipped
    save          called now and then, when every statistic holds exactly its first `statistic.samples` samples
    seconds       how often to save
    ended         called when all samples were seen; where some are skipped, before any other work
    unreachable   is given the tensors that no run can return -> the reason, before anything is saved
    """

    seen: Callable[[Sample], None]
    save: Callable[[], None]
    seconds: float = 5.0
    ended: Callable[[], None] = lambda: None
    unreachable: dict[str, str] = field(default_factory=dict)


def collect(
    graph: Graph,
    dataset: Iterable[Feed],
    statistics: Statistics,
    *,
    engine: Engine | None = None,
    shard: Shard | None = None,
    optimize: Optimize | None = None,
    progress: Progress | None = None,
    journal: Journal | None = None,
    kept: KeptTap | None = None,
) -> CollectReport:
    """Update each tensor's statistics with all its values; a constant is looked at once, by the first shard.

    `kept` is for a caller that goes on with other samples of the same graph: both use one session.

    Tensors inside bodies are seen without their shape, so their statistics must be per tensor.
    """
    started = time.monotonic()
    notes: dict[str, None] = {}
    constants = {name for name in statistics if graph.is_constant(name)}
    for name in constants if shard is None or shard.number == 1 else ():
        for statistic in statistics[name]:
            if not statistic.rows:  # otherwise an earlier run has looked at it
                statistic.update(graph.values(name))
    varying = {name: kinds for name, kinds in statistics.items() if name not in constants}
    if not varying:
        return CollectReport(seconds=time.monotonic() - started)
    samples = Samples(graph, dataset, shard, lambda text: notes.setdefault(text))
    length = _length(dataset, samples.shard)
    run = _Run(graph, samples, varying, engine or Engine(), optimize, progress, journal, length, kept or KeptTap())
    run.all_passes()
    remarks = (*notes, *run.inputs.notes(), *run.memory_notes())
    return CollectReport(run.samples, time.monotonic() - started, run.passes, run.unreachable, remarks)


@dataclass(frozen=True)
class _Planned:
    """One pass: the statistics that it fills, which all hold the first `skip` samples already."""

    skip: int
    statistics: Statistics
    reduced: frozenset[str]

    def only(self, tensors: Sequence[str]) -> _Planned:
        return _Planned(self.skip, {name: self.statistics[name] for name in tensors}, self.reduced)


class _Run:
    """The state of one call of `collect`."""

    def __init__(
        self,
        graph: Graph,
        samples: Samples,
        statistics: Statistics,
        engine: Engine,
        optimize: Optimize | None,
        progress: Progress | None,
        journal: Journal | None,
        length: int | None,
        kept: KeptTap,
    ) -> None:
        self.samples = self.passes = 0
        self.inputs = InputWatch()
        self._largest: dict[str, int] = {}
        self.unreachable = {} if journal is None else journal.unreachable
        self._graph = graph
        self._data = samples
        self._statistics = statistics
        self._engine = engine
        self._optimize: Optimize = optimization_of(graph) if optimize is None else optimize
        self._progress = progress
        self._journal = journal
        self._length = length
        self._taps = kept
        self._runs = self._pending_passes = 0
        self._told = self._reached = 0
        self._arranged = False
        # The same for every pass, and whatever else is collected: see `onnxq.runtime.pinned`.
        self._pinned = pinned_beside(graph, statistics)

    def all_passes(self) -> None:
        first = next(iter(self._data), None)
        if first is None:
            raise DataError(self._no_samples())
        limit = self._engine.bytes_of_a_run()
        known = known_sizes(self._graph, self._pinned, first.feed)
        sizes = completed_sizes(known, self._pinned, first.feed)
        # A run that is not arranged may keep every pinned tensor until it ends, and a copy in another layout.
        open_sizes = len(sizes) - len(known)
        large = 2 * sum(sizes.values()) > limit or open_sizes > MANY_OPEN_SIZES
        self._arranged = large or self._arranging_pays(sum(sizes.values()))
        pending = list(self._planned(sizes, first.feed, limit))
        while pending:
            planned = pending.pop(0)
            self._pending_passes = len(pending)
            try:
                self._one_pass(planned, limit)
            except TooLarge as error:
                pending = [
                    planned.only(part) for part in divide(list(planned.statistics), error.sizes, limit)
                ] + pending

    def _arranging_pays(self, pinned: int) -> bool:
        """Whether faster runs make up for a session that takes longer to create (measured on CNNs and transformers)."""
        if self._length is None:
            return True
        per_tensor = SAVED_PER_TENSOR[self._optimize]
        saved = self._length * (pinned * SAVED_PER_BYTE + len(self._pinned) * per_tensor)
        cost = ARRANGING_SECONDS + ARRANGING_PER_BYTE * weight_bytes(self._graph.gs)
        return saved > cost + ARRANGING_PER_NODE * len(self._graph.gs.nodes)

    def _planned(self, sizes: Mapping[str, int], feed: Feed, limit: int) -> Iterator[_Planned]:
        """Passes: what is at the same sample goes together, as far as memory allows."""
        by_skip: dict[int, dict[str, list[RangeStatistic]]] = {}
        for name, kinds in self._statistics.items():
            for statistic in kinds:
                skip = 0 if self._journal is None else statistic.samples
                by_skip.setdefault(skip, {}).setdefault(name, []).append(statistic)
        for skip, statistics in sorted(by_skip.items(), reverse=True):
            ranges = [
                name
                for name, kinds in statistics.items()
                if all(statistic.kind == "range" and statistic.axis is None for statistic in kinds)
            ]
            reduced = frozenset(reducible(self._graph, ranges, sizes, feed))
            held = {name: 0 if name in reduced else sizes[name] for name in statistics}
            for part in divide(list(statistics), held, limit):
                yield _Planned(skip, {name: statistics[name] for name in part}, reduced)

    def _one_pass(self, planned: _Planned, limit: int) -> None:
        todo = self._todo(planned.skip)
        first = next(todo, None)
        if first is None:
            return
        # One thread in each kernel: cores work on different samples, and sums have one order however many there are.
        # An arranged session takes longer to make; its runs are faster and let go of tensors as soon as they can.
        new_tap = partial(
            self._taps.of,
            self._graph,
            pinned=self._pinned,
            arranged=self._arranged,
            optimize=self._optimize,
            threads=1,
            provider=self._engine.provider,
        )
        look = CollectPass(self._graph, planned.statistics, planned.reduced, new_tap, limit=limit, done=self._one_done)
        self.unreachable.update(look.unreachable)
        look.begin(first)
        self._largest.update(look.over_the_limit)
        taken, empty = 1, False
        while not empty:
            until = None if self._journal is None else time.monotonic() + self._journal.seconds
            line = SampleQueue(todo, taken, until)
            look.run(line, self._engine.threads())
            taken, empty = line.number, line.empty
            for kinds in planned.statistics.values():
                for statistic in kinds:
                    statistic.samples = self._reached
            if self._journal is not None and not empty:
                self._journal.save()
        self.passes += 1

    def _todo(self, skip: int) -> Iterator[Sample]:
        """The samples behind the first `skip`; counts and shows all of them on the way."""
        self._reached = 0
        for turn, sample in enumerate(self._data):
            if turn == self._told:
                self._told += 1
                self.inputs.see(sample.feed)
                if self._journal is not None:
                    self._journal.seen(sample)
            self._reached += sample.rows
            if self._reached > skip:
                yield sample
        if self._journal is not None and not self.samples:
            self._journal.ended()
        self.samples = self._reached

    def _no_samples(self) -> str:
        shard = self._data.shard
        if shard.count == 1:
            return "the calibration data holds no samples: give at least one"
        return (
            f"the calibration data has fewer than {shard.number} samples, so there are none for shard {shard}: give at "
            f"least {shard.count} samples, or divide them among fewer shards or processes"
        )

    def memory_notes(self) -> Iterator[str]:
        """A tensor cannot be divided: where one is larger than the limit, the user should know."""
        if self._largest:
            name, size = max(self._largest.items(), key=lambda item: item[1])
            yield (
                f"the memory limit is exceeded: tensor '{name}' alone takes {size / 2**20:.1f} MiB, and "
                f"{self._engine.threads()} of it may be held at a time"
            )

    def _one_done(self) -> None:
        self._runs += 1
        if self._progress is not None:
            passes = self.passes + 1 + self._pending_passes
            total = None if self._length is None else max(self._length * passes, self._runs)
            self._progress(self._runs, total)


def _length(dataset: Iterable[Feed], shard: Shard) -> int | None:
    """How many runs one pass takes, where that is known."""
    length = dataset.length if isinstance(dataset, Dataset) else len(dataset) if isinstance(dataset, Sized) else None
    return None if length is None else -(-(length - shard.number + 1) // shard.count)
