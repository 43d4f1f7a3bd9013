"""One pass through the data for some tensors: threads run samples and take what they see into the statistics."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from onnxq.errors import UnsupportedError
from onnxq.graph import Graph
from onnxq.observers import HistogramStatistic, RangeStatistic
from onnxq.runtime.bank import RangeBank
from onnxq.runtime.buffers import BufferedTap, Seen
from onnxq.runtime.samples import Sample
from onnxq.runtime.session import Optimize
from onnxq.runtime.tap import Tap
from onnxq.runtime.workers import Line, run_workers

Statistics = Mapping[str, Sequence[RangeStatistic]]
"""Tensor -> the statistics that look at it."""


class TooLarge(Exception):
    """A run returns more than is allowed; `sizes` are the bytes of each tensor."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__("a run holds more than the memory limit")
        self.sizes = sizes


class Look:
    """A session for the tensors of `statistics`, and threads that run it.

    `reduced` are tensors of which only minimum and maximum are wanted and can be taken inside the graph; `pinned` are
    those of all passes.
    """

    def __init__(
        self,
        graph: Graph,
        statistics: Statistics,
        reduced: Collection[str],
        pinned: Collection[str],
        *,
        optimize: Optimize | None,
        provider: str | None,
        done: Callable[[], None],
    ) -> None:
        self._graph = graph
        self._statistics = statistics
        self._reduced = {name for name in reduced if name in statistics}
        self._pinned = pinned
        self._optimize: Optimize | None = optimize
        self._provider = provider
        self._done = done
        self._tap = self._new_tap()
        self._banked = [name for name, kinds in statistics.items() if all(_fits_bank(kind) for kind in kinds)]
        self._idle: list[_Worker] = []
        self._in_order = any(statistic.ordered for kinds in statistics.values() for statistic in kinds)
        self._adding, self._building = threading.Lock(), threading.Lock()
        self._waiting: dict[int, list[tuple[Callable[[Any], None], Any]]] = {}
        self._next = 0

    @property
    def unreachable(self) -> dict[str, str]:
        """Tensors that no run can return -> the reason."""
        return self._tap.unreachable

    def begin(self, sample: Sample, limit: int) -> None:
        """Run the first sample; raises TooLarge when one run holds more than `limit` bytes of several tensors."""
        worker, seen = self._see(_Worker(self._tap, self._banked), sample)
        sizes = {name: array.nbytes for name, array in seen.values.items()}
        if sum(sizes.values()) > limit and len(sizes) > 1:
            raise TooLarge({name: sizes.get(name, 0) for name in self._statistics})
        self._take_in(worker, 0, sample, seen)
        self._idle.append(worker)

    def run(self, line: Line[Sample], threads: int) -> None:
        """Look at the samples of `line`, which are numbered from 1 on: `begin` has seen number 0."""
        run_workers(threads, lambda: self._work(line), line.close)

    def _work(self, line: Line[Sample]) -> None:
        with self._building:
            worker = self._idle.pop() if self._idle else _Worker(self._tap, self._banked)
        with np.errstate(invalid="ignore"):  # a NaN is found and reported, numpy need not warn of it
            while (item := line.take()) is not None:
                number, sample = item
                worker, seen = self._see(worker, sample)
                self._take_in(worker, number, sample, seen)
        self._take_ranges(worker)
        with self._building:
            self._idle.append(worker)

    def _see(self, worker: _Worker, sample: Sample) -> tuple[_Worker, Seen]:
        """Run a sample; a tensor whose reduction cannot be trusted is looked at in full from then on."""
        if worker.runs.tap is not self._tap:
            worker = self._renewed(worker)
        seen = worker.runs.run(sample.feed, f"sample {sample.number}")
        while seen.suspicious:
            with self._building:
                if self._reduced & set(seen.suspicious):
                    self._reduced -= set(seen.suspicious)
                    self._tap = self._new_tap()
            worker = self._renewed(worker)
            seen = worker.runs.run(sample.feed, f"sample {sample.number}")
        return worker, seen

    def _renewed(self, worker: _Worker) -> _Worker:
        self._take_ranges(worker)
        return _Worker(self._tap, self._banked)

    def _take_ranges(self, worker: _Worker) -> None:
        """What a thread has gathered in its bank."""
        with self._adding:
            for tensor, extent in worker.bank.take():
                for statistic in self._statistics[tensor]:
                    statistic.add_extent(extent)

    def _new_tap(self) -> Tap:
        # One thread in each kernel: cores work on different samples, and sums have the same order on every machine.
        return Tap(
            self._graph,
            self._statistics,
            reduce=self._reduced,
            pinned=self._pinned,
            optimize=self._optimize,
            threads=1,
            provider=self._provider,
        )

    def _take_in(self, worker: _Worker, number: int, sample: Sample, seen: Seen) -> None:
        found: list[tuple[Callable[[Any], None], Any]] = []
        bank = worker.bank
        bank.begin()
        if seen.reduced is not None:
            bank.put_many(worker.reduced, seen.reduced.low, seen.reduced.high, seen.reduced.count)
        for tensor, values in seen.values.items():
            plain = tensor in bank.place and sample.rows == 1 and values.dtype == np.float32 and values.size > 0
            if plain and bank.put(tensor, values):
                for statistic in self._statistics[tensor]:
                    if isinstance(statistic, HistogramStatistic):
                        found.append((statistic.add_counted, statistic.counted(values)))
            else:
                found.extend(self._look(tensor, values, sample))
        bank.end(sample.number)
        with self._adding:
            self._waiting[number] = found
            ready = number if not self._in_order else self._next
            while ready in self._waiting:
                for add, partial in self._waiting.pop(ready):
                    add(partial)
                self._next = ready = ready + 1
            self._done()

    def _look(self, tensor: str, values: np.ndarray, sample: Sample) -> Iterator[tuple[Callable[[Any], None], Any]]:
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


class _Worker:
    """What belongs to one thread: memory for the outputs of its runs, and the ranges that it has seen."""

    def __init__(self, tap: Tap, banked: Sequence[str]) -> None:
        self.runs = BufferedTap(tap)
        self.bank = RangeBank(banked)
        self.reduced = [self.bank.place[tensor] for tensor in tap.reductions]


def _fits_bank(statistic: RangeStatistic) -> bool:
    return statistic.axis is None and statistic.kind in ("range", "histogram")
