"""Second moments of what layers multiply their weights with: E[x xT] over samples and positions.

With them the error of a layer's output is known for any change d of a row of its weight, without running the model:

    E[(d x)^2] = d E[x xT] dT

Each sample is multiplied in float32 and added up in float64; nothing of a sample is kept. Layers that multiply the same
rows of the same tensor share one matrix.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from onnxq.graph import Graph
from onnxq.ptq.method import Samples
from onnxq.ptq.weights.rows import Rows
from onnxq.runtime.tap import Tap

FEWEST_ROWS = 4096
"""Rows that are looked at for a layer, over all samples, where there are as many; wide layers get two per column."""


@dataclass(frozen=True)
class Source:
    """Rows of a tensor of the main graph; `groups` matrices are multiplied, with `columns` columns each."""

    tensor: str
    rows: Rows
    groups: int
    columns: int

    @property
    def bytes(self) -> int:
        """What the sums take: float64, and the product of one sample in float32."""
        return 12 * self.groups * self.columns**2


class Moments:
    """Sums of x xT, [groups, columns, columns], and of x, [groups, columns], over rows, in float64; how many rows."""

    def __init__(self, groups: int, columns: int) -> None:
        self.total = np.zeros((groups, columns, columns))
        self.sums = np.zeros((groups, columns))
        self.count = 0

    def add(self, rows: np.ndarray) -> None:
        """Rows [groups, rows, columns]."""
        x = rows.astype(np.float32, copy=False)
        self.total += x.swapaxes(1, 2) @ x
        self.sums += x.sum(1, dtype=np.float64)
        self.count += x.shape[1]

    def mean(self) -> np.ndarray:
        """E[x xT], float64."""
        return self.total / max(self.count, 1)


def collect_moments(
    graph: Graph,
    sources: Collection[Source],
    samples: Samples,
    *,
    seed: int = 0,
    most_rows: int | None = None,
    passes_for: Collection[Source] = (),
) -> dict[Source, Moments]:
    """The moments of all sources, in one pass over the samples.

    `passes_for` are those of all passes, where this is one of several: each pins the tensors of all of them, so that
    their bits do not depend on how many passes there are.

    `most_rows` limits the rows of a source over all samples; None takes FEWEST_ROWS, or two for each column.
    """
    found = {source: Moments(source.groups, source.columns) for source in sources}
    tensors, pinned = ({source.tensor: None for source in each} for each in (found, passes_for))
    tap = Tap(graph, tensors, pinned=pinned, arranged=not pinned.keys() <= tensors.keys())
    for number, feed in enumerate(samples):
        values = tap.run(feed, f"sample {samples.numbers[number]}")
        for source, moments in found.items():
            limit = max(FEWEST_ROWS, 2 * source.columns) if most_rows is None else most_rows
            random = np.random.default_rng((seed, number, zlib.crc32(source.tensor.encode())))
            moments.add(source.rows.rows(values[source.tensor], -(-limit // len(samples)), random))
    return found


def in_batches(needs: Sequence[Sequence[Source]], limit: int) -> list[list[int]]:
    """The numbers of `needs`, cut into consecutive runs whose sources take at most `limit` bytes together.

    What several need counts once; one that is above the limit is alone.
    """
    batches: list[list[int]] = []
    held: set[Source] = set()
    for number, sources in enumerate(needs):
        together = held | set(sources)
        if batches and sum(source.bytes for source in together) <= limit:
            batches[-1].append(number)
            held = together
        else:
            batches.append([number])
            held = set(sources)
    return batches
