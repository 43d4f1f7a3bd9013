"""One pass through the data for some tensors: threads run samples and take what they see into the statistics."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np

from onnxq.errors import UnsupportedError
from onnxq.graph import Graph
from onnxq.observers import HistogramStatistic, RangeStatistic
from onnxq.observers.statistics.counting_together import CountsTogether
from onnxq.runtime.buffers import BufferedTap, Seen
from onnxq.runtime.range_accumulator import RangeAccumulator
from onnxq.runtime.samples import Sample
from onnxq.runtime.tap import Tap, divide, estimated_sizes
from onnxq.runtime.workers import SampleQueue, run_workers

Statistics = Mapping[str, Sequence[RangeStatistic]]
"""Tensor -> the statistics that look at it."""


Addition = tuple[Callable[[Any], None], Any]
"""A method of a statistic, and what to call it with once it is the sample's turn."""

FARTHEST_AHEAD = 64
"""How far samples may be ahead of the one that a statistic which needs them in order waits for."""

MOST_PARTS = 16
"""Sessions for single samples that are kept, for samples that are too large or hold NaN."""


class TooLarge(Exception):
    """A run returns more than is allowed; `sizes` are the bytes of each tensor."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__("a run holds more than the memory limit")
        self.sizes = sizes


class CollectPass:
    """A session for the tensors of `statistics`, and threads that run it.

    reduced   tensors of which only minimum and maximum are wanted and can be taken inside the graph
    new_tap   makes a session for some of the tensors: `Tap` with what all passes have in common
    limit     bytes of observed tensors that one run may hold, unless it returns a single tensor
    """

    def __init__(
        self,
        graph: Graph,
        statistics: Statistics,
        reduced: Collection[str],
        new_tap: Callable[..., Tap],
        *,
        limit: int,
        done: Callable[[], None],
    ) -> None:
        self._graph = graph
        self._statistics = statistics
        self._reduced = {name for name in reduced if name in statistics}
        self._make_tap = new_tap
        self._limit = limit
        self._done = done
        self._parts: dict[tuple[str, ...], Tap] = {}
        self._accumulated = [
            name for name, kinds in statistics.items() if all(_has_range_alone(kind) for kind in kinds)
        ]
        counting = {
            name: [kind for kind in kinds if isinstance(kind, HistogramStatistic)] for name, kinds in statistics.items()
        }
        self._histograms = {name: kinds for name, kinds in counting.items() if kinds}
        self._tap = self._new_tap(list(statistics), self._reduced)
        self._idle: list[_Worker] = []
        self._in_order = any(statistic.ordered for kinds in statistics.values() for statistic in kinds)
        self._adding, self._building = threading.Condition(), threading.Lock()
        self._waiting: dict[int, list[Addition]] = {}
        self._next = 0
        self._stopped = False
        self.over_the_limit: dict[str, int] = {}
        """A single tensor that holds more than the limit, with its bytes."""

    @property
    def unreachable(self) -> dict[str, str]:
        """Tensors that no run can return -> the reason."""
        return self._tap.unreachable

    def begin(self, sample: Sample) -> None:
        """Run the first sample alone; raises TooLarge when that shows that a run holds too much.

        onnxruntime's memory grows to what a run needs. When several runs begin at once, it grows to more.
        """
        worker = self._new_worker()
        seen = worker.runs.run(sample.feed, _where(sample))
        sizes = {name: array.nbytes for name, array in seen.values.items()}
        if sum(sizes.values()) > self._limit:
            if len(sizes) > 1:
                raise TooLarge({name: sizes.get(name, 0) for name in self._statistics})
            self.over_the_limit = sizes
        self._take_in(worker, 0, sample, seen)
        self._idle.append(worker)

    def run(self, line: SampleQueue[Sample], threads: int) -> None:
        """Look at the samples of `line`, which are numbered from 1 on: `begin` has seen number 0."""

        def stop() -> None:
            line.close()
            with self._adding:
                self._stopped = True
                self._adding.notify_all()

        run_workers(threads, lambda: self._work(line), stop)

    def _work(self, line: SampleQueue[Sample]) -> None:
        with self._building:
            worker = self._idle.pop() if self._idle else self._new_worker()
        with np.errstate(invalid="ignore"):  # a NaN is found and reported, numpy need not warn of it
            while (item := line.take()) is not None:
                number, sample = item
                if worker.runs.tap is not self._tap:
                    self._take_ranges(worker)
                    worker = self._new_worker()
                seen = None
                if worker.runs.knows(sample.feed) or self._held(sample) <= self._limit:
                    seen = worker.runs.run(sample.feed, _where(sample))
                self._take_in(worker, number, sample, seen)
        self._take_ranges(worker)
        with self._building:
            self._idle.append(worker)

    def _held(self, sample: Sample) -> int:
        """Bytes that a run of the whole tap would hold, as far as shapes tell."""
        return sum(estimated_sizes(self._graph, list(self._tap.outputs), sample.feed).values())

    def _new_worker(self) -> _Worker:
        return _Worker(self._tap, self._accumulated, self._histograms)

    def _new_tap(self, tensors: Sequence[str], reduced: Collection[str]) -> Tap:
        return self._make_tap(tensors, reduce=reduced, any_order=self._accumulated)

    def _take_in(self, worker: _Worker, number: int, sample: Sample, seen: Seen | None) -> None:
        """Take in one sample: what its run has shown, or, without one, all tensors in runs that are small enough."""
        ranges = worker.ranges
        ranges.begin()
        if seen is None:
            found = list(self._in_parts(ranges, sample, list(self._statistics)))
        else:
            known = self._put_together(worker, sample, seen)
            found = list(self._all_looks(ranges, sample, seen.values, known, counted=worker.counts is not None))
            if seen.reduced is not None:
                good = [i for i, name in enumerate(self._tap.reductions) if name not in seen.suspicious]
                low, high, count = seen.reduced.low, seen.reduced.high, seen.reduced.count
                ranges.put_many([worker.reduced[i] for i in good], low[good], high[good], count[good])
            if seen.suspicious:
                found += self._in_parts(ranges, sample, seen.suspicious)
                self._distrust([name for name in seen.suspicious if ranges.holds(name)])
        ranges.end(sample.number)
        with self._adding:
            if self._in_order:
                # A slow sample must not let the others pile up.
                self._adding.wait_for(lambda: number - self._next < FARTHEST_AHEAD or self._stopped)
            self._waiting[number] = found
            ready = number if not self._in_order else self._next
            while ready in self._waiting:
                for add, partial in self._waiting.pop(ready):
                    add(partial)
                self._next = ready = ready + 1
            self._adding.notify_all()
            self._done()

    def _put_together(self, worker: _Worker, sample: Sample, seen: Seen) -> Set[str]:
        """Ranges that came for many tensors at once; returns the tensors whose range is known by that."""
        if seen.together is None or sample.rows != 1:
            return frozenset()
        low, high, count = seen.together.low, seen.together.high, seen.together.count
        good = np.isfinite(low) & np.isfinite(high)
        if not worker.is_laid_out:
            self._take_counts(worker)
        places = worker.places_together()
        if worker.counts is not None:
            if worker.counts.full:
                self._take_counts(worker)
            worker.counts.count(worker.runs.row, worker.counted[good[worker.counted]])
        if good.all():
            worker.ranges.put_many(places, low, high, count)
            return worker.together
        names = worker.runs.together
        worker.ranges.put_many(
            [place for place, fine in zip(places, good, strict=True) if fine], low[good], high[good], count[good]
        )
        return {name for name, fine in zip(names, good, strict=True) if fine}

    def _distrust(self, tensors: Sequence[str]) -> None:
        """Return these tensors from now on: all values are finite though their sum is not."""
        with self._building:
            if self._reduced & set(tensors):
                self._reduced -= set(tensors)
                self._tap = self._new_tap(list(self._statistics), self._reduced)

    def _in_parts(self, ranges: RangeAccumulator, sample: Sample, tensors: Sequence[str]) -> Iterator[Addition]:
        """Look at the values of some tensors, by as many runs as the limit asks for."""
        for group in divide(tensors, estimated_sizes(self._graph, tensors, sample.feed), self._limit):
            with self._building:
                key = tuple(group)
                if key not in self._parts:
                    if len(self._parts) >= MOST_PARTS:
                        self._parts.clear()
                    self._parts[key] = self._new_tap(group, ())
                tap = self._parts[key]
            yield from self._all_looks(ranges, sample, tap.run(sample.feed, _where(sample)))

    def _all_looks(
        self,
        ranges: RangeAccumulator,
        sample: Sample,
        seen: Mapping[str, np.ndarray],
        known: Set[str] = frozenset(),
        *,
        counted: bool = False,
    ) -> Iterator[Addition]:
        """What statistics have to add for one run; ranges go into the accumulator where they can.

        Of the tensors `known` the range is there already, and values are wanted for histograms alone; where these are
        `counted`, for nothing more.
        """
        for tensor, values in seen.items():
            if tensor in known:
                for histogram in () if counted else self._histograms.get(tensor, ()):
                    yield histogram.add_counted, histogram.counted(values)
                continue
            plain = tensor in ranges.place and sample.rows == 1 and values.dtype == np.float32 and values.size > 0
            if plain and ranges.put(tensor, values):
                for histogram in self._histograms.get(tensor, ()):
                    yield histogram.add_counted, histogram.counted(values)
            else:
                yield from self._look(tensor, values, sample)

    def _look(self, tensor: str, values: np.ndarray, sample: Sample) -> Iterator[Addition]:
        """The general way, for every kind of statistic and every array."""
        flat = tensor in self._tap.flat
        for statistic in self._statistics[tensor]:
            if flat and statistic.axis is not None:
                raise UnsupportedError(
                    f"tensor '{tensor}' lies inside an If, Loop or Scan body: it can be observed per tensor only"
                )
            partial = statistic.look(values, sample.number, batch=1 if flat else sample.rows)
            if partial is not None:
                yield statistic.add, partial

    def _take_counts(self, worker: _Worker) -> None:
        """What a thread has counted by itself."""
        if worker.counts is None:
            return
        with self._adding:
            for tensor, counts in worker.counts.take():
                for histogram in self._histograms[tensor]:
                    histogram.add_counted([counts])

    def _take_ranges(self, worker: _Worker) -> None:
        """What a thread has gathered in its accumulator."""
        self._take_counts(worker)
        with self._adding:
            for tensor, extent in worker.ranges.take():
                for statistic in self._statistics[tensor]:
                    statistic.add_extent(extent)


class _Worker:
    """What belongs to one thread: memory for the outputs of its runs, and the ranges and counts that it has seen.

    counts   of the small tensors that lie together now, for those among them that have a histogram: `counted`
    """

    def __init__(self, tap: Tap, accumulated: Sequence[str], histograms: Collection[str]) -> None:
        self.counts: CountsTogether | None = None
        self.counted = np.zeros(0, np.int64)
        self._histograms = histograms
        self.runs = BufferedTap(tap, accumulated)
        self.ranges = RangeAccumulator(accumulated)
        self.reduced = [self.ranges.place[tensor] for tensor in tap.reductions]
        self.together: frozenset[str] = frozenset()
        self._laid_out: list[str] = []
        self._places: list[int] = []

    @property
    def is_laid_out(self) -> bool:
        """Whether the last run had its tensors where those before had them; if not, `counts` begin anew."""
        return self._laid_out is self.runs.together

    def places_together(self) -> list[int]:
        """Where in the accumulator the tensors are that lie together now."""
        if not self.is_laid_out:
            self._laid_out = self.runs.together
            self.together = frozenset(self._laid_out)
            self._places = [self.ranges.place[tensor] for tensor in self._laid_out]
            wanted = [place for place, tensor in enumerate(self._laid_out) if tensor in self._histograms]
            self.counted = np.array(wanted, np.int64)
            possible = wanted and CountsTogether.possible()
            self.counts = CountsTogether(self._laid_out, self.runs.edges) if possible else None
        return self._places


def _has_range_alone(statistic: RangeStatistic) -> bool:
    return statistic.axis is None and statistic.kind in ("range", "histogram")


def _where(sample: Sample) -> str:
    return f"sample {sample.number}"
