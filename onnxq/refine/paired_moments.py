"""Second moments of what a layer reads in two models: x in the float model, y in the quantized one.

    H = E[y yT]        C = E[x yT]        E[x], E[y]

The rows are the same positions of the same samples in both. With these the layer Q that does on y what W did on x is
known without another run: the error of its output is Q H QT - 2 W C QT + a constant.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from onnxq.graph import Graph
from onnxq.improvement import Samples
from onnxq.refine.moments import FEWEST_ROWS, Source
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
        """H and C; centred where a bias takes up whatever the means differ by."""
        own, mixed = np.asarray(self.own / self.count), np.asarray(self.mixed / self.count)
        if not centred:
            return own, mixed
        mean_float, mean_own = self.means()
        right = mean_own[:, None, :]
        return own - mean_own[:, :, None] * right, mixed - mean_float[:, :, None] * right


Pair = tuple[Source, Source]
"""What a layer reads in the float model, and in the quantized one."""


def collect_paired(
    graph: Graph, quantized: Graph, pairs: Mapping[str, Pair], samples: Samples, *, seed: int = 0
) -> dict[str, PairedMoments]:
    """The moments of named pairs in one pass over the samples; rows that differ in number are left out."""
    found = {name: PairedMoments() for name in pairs}
    taps = (
        Tap(graph, [source.tensor for source, _ in pairs.values()]),
        Tap(quantized, [source.tensor for _, source in pairs.values()]),
    )
    for number, feed in enumerate(samples):
        values = [tap.run(feed, f"sample {samples.numbers[number]}") for tap in taps]
        for name, pair in pairs.items():
            limit = -(-max(FEWEST_ROWS, ROWS_PER_COLUMN * pair[0].columns) // len(samples))
            key = (seed, number, zlib.crc32(name.encode()))
            x, y = (
                source.rows.rows(seen[source.tensor], limit, np.random.default_rng(key))
                for source, seen in zip(pair, values, strict=True)
            )
            if x.shape == y.shape:
                found[name].add(x, y)
    return found
