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

from onnxq.errors import ConfigError, DataError
from onnxq.graph import Graph
from onnxq.runtime.dataset import Dataset
from onnxq.runtime.feeds import Feed
from onnxq.runtime.inputs import InputWatch
from onnxq.runtime.look import Look, Statistics, TooLarge
from onnxq.runtime.reduce import reducible
from onnxq.runtime.samples import Sample, Samples, Shard
from onnxq.runtime.session import CPU, Optimize, find_provider
from onnxq.runtime.tap import FULL_OPTIMIZATION_NODES, default_memory_limit, divide, estimated_sizes
from onnxq.runtime.workers import Line, available_cores

FEW_RUNS = 8
"""For so few runs of a large graph even basic optimization does not pay."""

Progress = Callable[[int, int | None], None]
"""Called with the number of runs done and, where it is known, the number of runs to do."""


@dataclass(frozen=True)
class Engine:
    """How to run: what changes time and memory.

    workers        samples that are run at the same time, one core each; every core by default, 1 for other providers
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
        return available_cores() if find_provider(self.provider) == CPU else 1

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

    seen      called once with every sample, in order, before it is run; also with samples that `done` skips
    done      tensor -> how many samples its statistics hold already: they are skipped
    save      called now and then with tensor -> samples, when these and no others are in the statistics
    seconds   how often to save
    """

    seen: Callable[[Sample], None]
    done: Mapping[str, int]
    save: Callable[[Mapping[str, int]], None]
    seconds: float = 3.0


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
) -> CollectReport:
    """Update each tensor's statistics with all its values; a constant is looked at once.

    Tensors inside bodies are seen without their shape, so their statistics must be per tensor.
    """
    started = time.monotonic()
    notes: dict[str, None] = {}
    constants = {name for name in statistics if graph.is_constant(name)}
    for name in constants:
        for statistic in statistics[name]:
            statistic.update(graph.values(name))
    varying = {name: kinds for name, kinds in statistics.items() if name not in constants}
    if not varying:
        return CollectReport(seconds=time.monotonic() - started)
    samples = Samples(graph, dataset, shard, lambda text: notes.setdefault(text))
    run = _Run(
        graph, samples, varying, engine or Engine(), optimize, progress, journal, _length(dataset, samples.shard)
    )
    run.all_passes()
    remarks = (*notes, *run.inputs.notes())
    return CollectReport(run.samples, time.monotonic() - started, run.passes, run.unreachable, remarks)


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
    ) -> None:
        self.samples = self.passes = 0
        self.inputs = InputWatch()
        self.unreachable: dict[str, str] = {}
        self._graph = graph
        self._data = samples
        self._statistics = statistics
        self._engine = engine
        self._optimize: Optimize | None = optimize
        self._progress = progress
        self._journal = journal
        self._length = length
        self._runs = self._pending_passes = 0
        self._done = {name: 0 if journal is None else journal.done.get(name, 0) for name in statistics}
        self._told = 0

    def all_passes(self) -> None:
        first = next(iter(self._data), None)
        if first is None:
            raise DataError("the calibration data holds no samples: give at least one (at least one for each shard)")
        large = len(self._graph.gs.nodes) > FULL_OPTIMIZATION_NODES
        if self._optimize is None and large and self._length is not None and self._length <= FEW_RUNS:
            self._optimize = "none"
        limit = self._engine.bytes_of_a_run()
        sizes = estimated_sizes(self._graph, list(self._statistics), first.feed)
        reduced = self._reducible(sizes, first.feed)
        pending = self._groups({name: 0 if name in reduced else size for name, size in sizes.items()}, limit)
        while pending:
            group = pending.pop(0)
            self._pending_passes = len(pending)
            try:
                self._one_pass(group, reduced, limit)
            except TooLarge as error:
                pending = divide(group, error.sizes, limit) + pending

    def _groups(self, sizes: Mapping[str, int], limit: int) -> list[list[str]]:
        """Tensors that one pass can look at: those that are at the same sample, as far as memory allows."""
        groups = []
        for skip in sorted(set(self._done.values()), reverse=True):
            groups += divide([name for name in self._statistics if self._done[name] == skip], sizes, limit)
        return groups

    def _reducible(self, sizes: Mapping[str, int], feed: Feed) -> list[str]:
        ranges = [
            name
            for name, kinds in self._statistics.items()
            if all(statistic.kind == "range" and statistic.axis is None for statistic in kinds)
        ]
        return reducible(self._graph, ranges, sizes, feed)

    def _one_pass(self, group: Sequence[str], reduced: Sequence[str], limit: int) -> None:
        skip = self._done[group[0]]
        todo = self._todo(skip)
        first = next(todo, None)
        if first is None:
            return
        look = Look(
            self._graph,
            {name: self._statistics[name] for name in group},
            reduced,
            optimize=self._optimize,
            provider=self._engine.provider,
            done=self._one_done,
        )
        look.begin(first, limit)
        taken, empty = 1, False
        while not empty:
            until = None if self._journal is None else time.monotonic() + self._journal.seconds
            line = Line(todo, taken, until)
            look.run(line, self._engine.threads())
            taken, empty = line.number, line.empty
            self._done.update((name, skip + taken) for name in group)
            if self._journal is not None and not empty:
                self._journal.save(self._done)
        self.passes += 1
        self.unreachable.update(look.unreachable)

    def _todo(self, skip: int) -> Iterator[Sample]:
        """The samples that are not in the statistics yet; counts and shows all of them on the way."""
        rows = 0
        for turn, sample in enumerate(self._data):
            rows += sample.rows
            if turn == self._told:
                self._told += 1
                self.inputs.see(sample.feed)
                if self._journal is not None:
                    self._journal.seen(sample)
            if turn >= skip:
                yield sample
        self.samples = rows

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
