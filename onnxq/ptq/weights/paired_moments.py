"""Second moments of what a layer reads in two models: x in the float model, y in the quantized one.

    H = E[y yT]        C = E[x yT]        E[x], E[y]

The rows are the same positions of the same samples in both. With these the layer Q that does on y what W did on x is
known without another run: the error of its output is Q H QT - 2 W C QT + a constant.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from onnxq.graph import Graph
from onnxq.graph.extract import front_of
from onnxq.ptq.method import Samples
from onnxq.ptq.weights.moments import FEWEST_ROWS, Source
from onnxq.ptq.weights.shrinkage import shrunk
from onnxq.runtime.tap import Tap

ROWS_PER_COLUMN = 4
"""Twice as many as `moments` looks at: two models are compared, and what differs is small."""


@dataclass
class PairedMoments:
    """Sums over rows, [groups, columns, columns] and [groups, columns] in float64, and the number of rows."""

    own: np.ndarray | float = 0.0
    mixed: np.ndarray | float = 0.0
    sum_float: np.ndarray | float = 0.0
    sum_own: np.ndarray | float = 0.0
    count: int = field(default=0)

    def add(self, of_float: np.ndarray, own: np.ndarray) -> None:
        """Rows [groups, rows, columns] of both models."""
        x, y = (rows.astype(np.float32, copy=False) for rows in (of_float, own))
        self.own = self.own + (y.swapaxes(1, 2) @ y).astype(np.float64)
        self.mixed = self.mixed + (x.swapaxes(1, 2) @ y).astype(np.float64)
        self.sum_float = self.sum_float + x.sum(1, dtype=np.float64)
        self.sum_own = self.sum_own + y.sum(1, dtype=np.float64)
        self.count += x.shape[1]

    def with_more(self, other: PairedMoments) -> PairedMoments:
        """Those of two layers with the same weight."""
        return PairedMoments(
            self.own + other.own,
            self.mixed + other.mixed,
            self.sum_float + other.sum_float,
            self.sum_own + other.sum_own,
            self.count + other.count,
        )

    def of_own(self) -> PairedMoments:
        """What they are if the float model, too, gave the layer what the quantized one gives it."""
        return PairedMoments(self.own, self.own, self.sum_own, self.sum_own, self.count)

    @property
    def usable(self) -> bool:
        return self.count > 0 and bool(np.isfinite(self.own).all() and np.isfinite(self.mixed).all())

    def means(self) -> tuple[np.ndarray, np.ndarray]:
        """E[x] and E[y], [groups, columns]."""
        return np.asarray(self.sum_float / self.count), np.asarray(self.sum_own / self.count)

    def matrices(self, *, centred: bool) -> tuple[np.ndarray, np.ndarray]:
        """H and C, shrunk (`shrinkage.py`); centred where a bias takes up whatever the means differ by."""
        mean_float, mean_own = self.means()
        own = shrunk(np.asarray(self.own / self.count), mean_own, mean_own, self.count)
        mixed = shrunk(np.asarray(self.mixed / self.count), mean_float, mean_own, self.count)
        if not centred:
            return own, mixed
        right = mean_own[:, None, :]
        return own - mean_own[:, :, None] * right, mixed - mean_float[:, :, None] * right


class FloatRows:
    """The rows that layers read in the float model, found for several layers in one run and kept until they are used.

    `limit` is in bytes; the rows of what is asked for first are kept whatever they take.
    """

    def __init__(self, graph: Graph, samples: Samples, seed: int, limit: int) -> None:
        self._graph = graph
        self._samples = samples
        self._seed = seed
        self._limit = limit
        self._kept: dict[str, list[np.ndarray]] = {}

    def take(self, wanted: Mapping[str, Source], later: Mapping[str, Source]) -> dict[str, list[np.ndarray]]:
        """For each name the rows of each sample; `later` are those that will be asked for next, in order."""
        missing = {name: source for name, source in wanted.items() if name not in self._kept}
        if missing:
            room = self._limit - sum(map(self._bytes, missing.values()))
            for name, source in later.items():
                room -= self._bytes(source)
                if room < 0:
                    break
                if name not in self._kept:
                    missing[name] = source
            self._collect(missing)
        return {name: self._kept.pop(name) for name in wanted}

    def _bytes(self, source: Source) -> int:
        return 4 * source.groups * source.columns * _rows_of(source)

    def _collect(self, missing: Mapping[str, Source]) -> None:
        for name, rows in _each_sample(self._graph, missing, self._samples, self._seed):
            self._kept.setdefault(name, []).append(rows.astype(np.float32))


def collect_paired(
    quantized: Graph,
    sources: Mapping[str, Source],
    of_float: Mapping[str, list[np.ndarray]],
    samples: Samples,
    seed: int,
) -> dict[str, PairedMoments]:
    """The moments of named layers in one pass over the samples; rows that differ in number are left out."""
    found = {name: PairedMoments() for name in sources}
    numbers = dict.fromkeys(sources, 0)
    for name, rows in _each_sample(quantized, sources, samples, seed):
        other = of_float[name][numbers[name]]
        numbers[name] += 1
        if rows.shape == other.shape:
            found[name].add(other, rows)
    return found


def _each_sample(
    graph: Graph, sources: Mapping[str, Source], samples: Samples, seed: int
) -> Iterator[tuple[str, np.ndarray]]:
    """For each sample, name by name, some rows: those at the same places whatever the graph."""
    tensors = [source.tensor for source in sources.values()]
    tap = Tap(front_of(graph, tensors), tensors, threads=1)
    for number, feed in enumerate(samples):
        values = tap.run(feed, f"sample {samples.numbers[number]}")
        for name, source in sources.items():
            random = np.random.default_rng((seed, number, zlib.crc32(name.encode())))
            yield name, source.rows.rows(values[source.tensor], -(-_rows_of(source) // len(samples)), random)


def _rows_of(source: Source) -> int:
    """How many rows are looked at, over all samples."""
    return max(FEWEST_ROWS, ROWS_PER_COLUMN * source.columns)
