"""One pass through the data for some tensors: threads run samples and take what they see into the statistics."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from onnxq.errors import UnsupportedError
from onnxq.graph import Graph
from onnxq.observers import RangeStatistic
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
        self._runners: list[BufferedTap] = []
        self._in_order = any(statistic.ordered for kinds in statistics.values() for statistic in kinds)
        self._adding, self._building = threading.Lock(), threading.Lock()
        self._waiting: dict[int, list[tuple[RangeStatistic, Any]]] = {}
        self._next = 0

    @property
    def unreachable(self) -> dict[str, str]:
        """Tensors that no run can return -> the reason."""
        return self._tap.unreachable

    def begin(self, sample: Sample, limit: int) -> None:
        """Run the first sample; raises TooLarge when one run holds more than `limit` bytes of several tensors."""
        runner, seen = self._see(BufferedTap(self._tap), sample)
        sizes = {name: array.nbytes for name, array in seen.values.items()}
        if sum(sizes.values()) > limit and len(sizes) > 1:
            raise TooLarge({name: sizes.get(name, 0) for name in self._statistics})
        self._take_in(runner, 0, sample, seen)
        self._runners.append(runner)

    def run(self, line: Line[Sample], threads: int) -> None:
        """Look at the samples of `line`, which are numbered from 1 on: `begin` has seen number 0."""
        run_workers(threads, lambda: self._work(line), line.close)

    def _work(self, line: Line[Sample]) -> None:
        with self._building:
            runner = self._runners.pop() if self._runners else BufferedTap(self._tap)
        while (item := line.take()) is not None:
            number, sample = item
            runner, seen = self._see(runner, sample)
            self._take_in(runner, number, sample, seen)
        self._take_ranges(runner)
        with self._building:
            self._runners.append(runner)

    def _see(self, runner: BufferedTap, sample: Sample) -> tuple[BufferedTap, Seen]:
        """Run a sample; a tensor whose reduction cannot be trusted is looked at in full from then on."""
        if runner.tap is not self._tap:
            runner = self._renewed(runner)
        seen = runner.run(sample.feed, f"sample {sample.number}")
        while seen.suspicious:
            with self._building:
                if self._reduced & set(seen.suspicious):
                    self._reduced -= set(seen.suspicious)
                    self._tap = self._new_tap()
            runner = self._renewed(runner)
            seen = runner.run(sample.feed, f"sample {sample.number}")
        return runner, seen

    def _renewed(self, runner: BufferedTap) -> BufferedTap:
        self._take_ranges(runner)
        return BufferedTap(self._tap)

    def _take_ranges(self, runner: BufferedTap) -> None:
        """What a thread has gathered of tensors that were reduced inside the graph."""
        with self._adding:
            for tensor, extent in runner.ranges.take():
                for statistic in self._statistics[tensor]:
                    statistic.add(extent)

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

    def _take_in(self, runner: BufferedTap, number: int, sample: Sample, seen: Seen) -> None:
        if seen.reduced is not None:
            runner.ranges.add(seen.reduced.low, seen.reduced.high, seen.reduced.count, sample.number)
        found: list[tuple[RangeStatistic, Any]] = []
        for tensor, values in seen.values.items():
            flat = tensor in self._tap.flat
            for statistic in self._statistics[tensor]:
                if flat and statistic.axis is not None:
                    raise UnsupportedError(
                        f"tensor '{tensor}' lies inside an If, Loop or Scan body: it can be observed per tensor only"
                    )
                partial = statistic.look(values, sample.number, batch=1 if flat else sample.rows)
                if partial is not None:
                    found.append((statistic, partial))
        with self._adding:
            self._waiting[number] = found
            ready = number if not self._in_order else self._next
            while ready in self._waiting:
                for statistic, partial in self._waiting.pop(ready):
                    statistic.add(partial)
                self._next = ready = ready + 1
            self._done()
