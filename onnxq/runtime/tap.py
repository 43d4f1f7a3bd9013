"""Running a float graph over data and looking at any of its tensors on the way, in bounded memory.

The arrays of one run are handed on and forgotten before the next run. Where even one run would hold too much, the
tensors are divided over several passes through the data, each with its own session: onnxruntime keeps every output
until a run ends, asked for or not.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field

import numpy as np

from onnxq.errors import DataError, UnsupportedError
from onnxq.graph import Graph
from onnxq.observers import RangeStatistic
from onnxq.runtime.dataset import Dataset
from onnxq.runtime.expose import Exposer
from onnxq.runtime.feeds import Feed
from onnxq.runtime.memory import available_memory
from onnxq.runtime.session import Optimize, float_session, run_session

FULL_OPTIMIZATION_NODES = 2000
"""Above this many nodes the optimizer costs more than it gains: with every tensor an output, full optimization of
10,000 nodes takes 20 s where basic takes 0.7 s."""

OPEN_BRANCHES_OPSET = 11
"""Before, the branches of an If had to agree in shape, and one that lends an empty tensor to the other does not."""

FEW_RUNS = 8
"""For so few runs of a large graph even basic optimization does not pay."""

Progress = Callable[[int, int | None], None]
"""Called with the number of runs done and, where it is known, the number of runs to do."""


@dataclass(frozen=True)
class Observation:
    """The values of one tensor in one run, belonging to the samples `sample` .. `sample + batch - 1`.

    `flat` tells that the tensor lies inside a body: its values come in a row, from all iterations that ran.
    """

    tensor: str
    values: np.ndarray
    sample: int
    batch: int
    flat: bool = False


@dataclass(frozen=True)
class CollectReport:
    """What looking at the tensors took; `unreachable` maps tensors that no run can return to the reason."""

    samples: int
    seconds: float
    passes: int
    unreachable: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


class Tap:
    """A session for `graph` that returns `tensors` (inputs, outputs, anything between, in bodies too; no constants).

    `unreachable` holds those that it cannot return, with the reason.
    """

    def __init__(
        self, graph: Graph, tensors: Iterable[str], *, optimize: Optimize | None = None, threads: int | None = None
    ) -> None:
        self.unreachable: dict[str, str] = {}
        self.flat: set[str] = set()
        inputs = set(graph.input_names)
        carriers: dict[str, str] = {}
        exposer = Exposer(graph)
        wanted = list(dict.fromkeys(tensors))
        if any(exposer.is_inside(name) for name in wanted):
            graph = graph.copy()
            graph.raise_opset(OPEN_BRANCHES_OPSET)
            exposer = Exposer(graph)
        self._from_feed = [name for name in wanted if name in inputs]
        for name in wanted:
            graph.tensor(name)
            if name in inputs:
                continue
            try:
                carriers[name] = exposer.expose(name)
            except UnsupportedError as error:
                self.unreachable[name] = str(error)
                continue
            if exposer.is_inside(name):
                self.flat.add(name)
        self._names = list(carriers)
        self._outputs = list(carriers.values())
        if optimize is None:
            optimize = "all" if len(graph.gs.nodes) <= FULL_OPTIMIZATION_NODES else "basic"
        self._session = float_session(graph, self._outputs, threads=threads, optimize=optimize) if carriers else None

    def run(self, feed: Feed, where: str = "this data") -> dict[str, np.ndarray]:
        """Tensor -> its values for one feed."""
        found = {name: feed[name] for name in self._from_feed}
        if self._session is not None:
            found.update(zip(self._names, run_session(self._session, self._outputs, feed, where), strict=True))
        return found


def observe(
    graph: Graph,
    tensors: Sequence[str],
    dataset: Iterable[Feed],
    visit: Callable[[Observation], None],
    *,
    optimize: Optimize | None = None,
    threads: int | None = None,
    memory_limit_bytes: int | None = None,
    progress: Progress | None = None,
) -> CollectReport:
    """Call `visit` with every tensor of every run; a constant is visited once.

    `memory_limit_bytes` bounds the observed arrays of one run, a quarter of the available memory by default; a run with
    a single tensor is not divided further. Samples are counted by the rows of axis 0 that all inputs share.
    """
    started = time.monotonic()
    limit = default_memory_limit() if memory_limit_bytes is None else memory_limit_bytes
    wanted = list(dict.fromkeys(tensors))
    constants = [name for name in wanted if graph.is_constant(name)]
    for name in constants:
        visit(Observation(name, graph.values(name), 0, 1))
    stored = set(constants)
    varying = [name for name in wanted if name not in stored]
    if not varying:
        return CollectReport(0, time.monotonic() - started, 0)

    length = _length(dataset)
    if optimize is None and len(graph.gs.nodes) > FULL_OPTIMIZATION_NODES and length is not None and length <= FEW_RUNS:
        optimize = "none"
    first = next(iter(dataset), None)
    if first is None:
        raise DataError("the calibration data holds no samples: give at least one")
    pending = memory_groups(graph, varying, first, limit)
    unreachable: dict[str, str] = {}
    samples = done = passes = 0
    while pending:
        group = pending.pop(0)
        tap = Tap(graph, group, optimize=optimize, threads=threads)
        unreachable.update(tap.unreachable)
        samples = 0
        for number, feed in enumerate(dataset):
            values = tap.run(feed, f"sample {samples}")
            sizes = {name: array.nbytes for name, array in values.items()}
            if number == 0 and sum(sizes.values()) > limit and len(sizes) > 1:
                pending = _divide(list(sizes), sizes, limit) + pending
                break
            batch = _rows(feed)
            for name, array in values.items():
                flat = name in tap.flat
                visit(Observation(name, array, samples, 1 if flat else batch, flat))
            samples += batch
            done += 1
            if progress is not None:
                passes_known = passes + 1 + len(pending)
                progress(done, None if length is None else length * passes_known)
        else:
            passes += 1
    return CollectReport(samples, time.monotonic() - started, passes, unreachable)


def collect(
    graph: Graph,
    dataset: Iterable[Feed],
    statistics: Mapping[str, Sequence[RangeStatistic]],
    *,
    optimize: Optimize | None = None,
    threads: int | None = None,
    memory_limit_bytes: int | None = None,
    progress: Progress | None = None,
) -> CollectReport:
    """Update each tensor's statistics with all its values; warns of NaN and infinity, which statistics leave out.

    Tensors inside bodies are seen without their shape, so their statistics must be per tensor.
    """

    def visit(seen: Observation) -> None:
        for statistic in statistics[seen.tensor]:
            if seen.flat and statistic.axis is not None:
                raise UnsupportedError(
                    f"tensor '{seen.tensor}' lies inside an If, Loop or Scan body: it can be observed per tensor only"
                )
            statistic.update(seen.values, seen.sample, batch=seen.batch)

    report = observe(
        graph,
        list(statistics),
        dataset,
        visit,
        optimize=optimize,
        threads=threads,
        memory_limit_bytes=memory_limit_bytes,
        progress=progress,
    )
    warnings = tuple(_nonfinite_warnings({name: kinds[0] for name, kinds in statistics.items()}))
    return CollectReport(report.samples, report.seconds, report.passes, report.unreachable, warnings)


def _nonfinite_warnings(statistics: Mapping[str, RangeStatistic]) -> Iterator[str]:
    """A line for each tensor that held NaN or infinity."""
    for tensor, statistic in statistics.items():
        if statistic.nonfinite:
            many = "value" if statistic.nonfinite == 1 else "values"
            yield (
                f"tensor '{tensor}': {statistic.nonfinite} NaN/inf {many}, first in sample "
                f"{statistic.first_nonfinite}; left out of its range"
            )


def _length(dataset: Iterable[Feed]) -> int | None:
    if isinstance(dataset, Dataset):
        return dataset.length
    return len(dataset) if isinstance(dataset, Sized) else None


def _rows(feed: Feed) -> int:
    """Samples in a feed: the length of axis 0 when all inputs that have one agree, otherwise 1."""
    lengths = {array.shape[0] for array in feed.values() if array.ndim}
    return lengths.pop() if len(lengths) == 1 else 1


def default_memory_limit() -> int:
    """A quarter of the available memory: onnxruntime and numpy may each hold a copy for a moment."""
    return available_memory() // 4


def memory_groups(graph: Graph, tensors: Sequence[str], feed: Feed, limit: int) -> list[list[str]]:
    """The tensors in groups that one run on `feed` can return within `limit` bytes, as far as shapes tell."""
    return _divide(tensors, _estimated_sizes(graph, tensors, feed), limit)


def _divide(tensors: Sequence[str], sizes: Mapping[str, int], limit: int) -> list[list[str]]:
    """Consecutive groups that stay within the limit; a tensor above it is alone."""
    groups: list[list[str]] = []
    room = 0
    for name in tensors:
        if not groups or sizes[name] > room:
            groups.append([])
            room = limit
        groups[-1].append(name)
        room -= sizes[name]
    return groups


def _estimated_sizes(graph: Graph, tensors: Sequence[str], feed: Feed) -> dict[str, int]:
    """Bytes of each tensor in the run of `feed`; the first run measures what declared shapes leave open.

    Symbolic dimensions have the length they have in the feed; a tensor with other open dimensions counts as the
    largest input.
    """
    symbols: dict[str, int] = {}
    for name, array in feed.items():
        for dim, length in zip(graph.shape(name) or (), array.shape, strict=False):
            if isinstance(dim, str):
                symbols[dim] = length
    largest = max((array.nbytes for array in feed.values()), default=0)
    sizes = {}
    for name in tensors:
        shape = graph.shape(name)
        dims = [symbols.get(dim) if isinstance(dim, str) else dim for dim in ((None,) if shape is None else shape)]
        known = [dim for dim in dims if dim is not None]
        dtype = graph.dtype(name)
        itemsize = 4 if dtype is None else dtype.itemsize
        sizes[name] = math.prod(known) * itemsize if len(known) == len(dims) else largest
    return sizes
