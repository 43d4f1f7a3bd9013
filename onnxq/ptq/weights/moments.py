"""Second moments of what layers multiply their weights with: E[x xT] over samples and positions.

With them the error of a layer's output is known for any change d of a row of its weight, without running the model:

    E[(d x)^2] = d E[x xT] dT

Each sample is multiplied in float32 and added up in float64; nothing of a sample is kept. Layers that multiply the same
rows of the same tensor share one matrix.

Where a matrix has many columns and one number for a whole row of weights is looked for, a few of the rows x say nearly
the same, for a fraction of the work: E[(d x)^2] is then their mean (`ThinMoments`).
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from onnxq.graph import Graph
from onnxq.ptq.method import Samples
from onnxq.ptq.weights.rows import Rows
from onnxq.runtime.feeds import Feed
from onnxq.runtime.session import KEEP_PAIRS
from onnxq.runtime.tap import Tap
from onnxq.runtime.workers import in_threads

FEWEST_ROWS = 4096
"""Rows that are looked at for a layer, over all samples, where there are as many; wide layers get two per column."""


@dataclass(frozen=True)
class Integers:
    """The tensor of integers that a float one is made of, by a DequantizeLinear with these constants."""

    tensor: str
    scale: float
    zero_point: int

    def floats(self, values: np.ndarray) -> np.ndarray:
        """What DequantizeLinear makes of them, bit for bit."""
        return (values.astype(np.int32) - self.zero_point).astype(np.float32) * np.float32(self.scale)


@dataclass(frozen=True)
class Source:
    """Rows of a tensor of the main graph; `groups` matrices are multiplied, with `columns` columns each.

    `kept` rows are kept as they are, over all samples, in the place of their moments; 0 makes moments. Where the tensor
    is made of `integers`, those are what a run returns: a float tensor that somebody asks for has no integer kernel.
    """

    tensor: str
    rows: Rows
    groups: int
    columns: int
    kept: int = 0
    integers: Integers | None = None

    @property
    def returned(self) -> str:
        """The tensor that a run returns."""
        return self.tensor if self.integers is None else self.integers.tensor

    def values(self, returned: np.ndarray) -> np.ndarray:
        return returned if self.integers is None else self.integers.floats(returned)

    @property
    def bytes(self) -> int:
        """What the sums take: float64, and the product of one sample in float32."""
        return 4 * self.groups * self.columns * (self.kept or 3 * self.columns)

    def most_rows(self) -> int:
        """How many rows are looked at, over all samples."""
        return self.kept or max(FEWEST_ROWS, 2 * self.columns)


@dataclass(frozen=True)
class ThinMoments:
    """E[x xT] = rT r with few rows r, float32 [groups, rows, columns]."""

    rows: np.ndarray


class KeptRows:
    """Rows [groups, rows, columns] of each sample."""

    def __init__(self) -> None:
        self.parts: list[np.ndarray] = []

    def usable(self) -> bool:
        """Whether there are rows, all of them finite."""
        return any(rows.shape[1] for rows in self.parts) and all(np.isfinite(rows).all() for rows in self.parts)

    def thin(self) -> ThinMoments:
        rows = np.concatenate(self.parts, axis=1)
        return ThinMoments(np.ascontiguousarray(rows / np.float32(max(rows.shape[1], 1)) ** 0.5, np.float32))


class Moments:
    """Sums of x xT, [groups, columns, columns], and of x, [groups, columns], over rows, in float64; how many rows."""

    def __init__(self, groups: int, columns: int) -> None:
        self.total = np.zeros((groups, columns, columns))
        self.sums = np.zeros((groups, columns))
        self.count = 0

    def add(self, rows: np.ndarray) -> None:
        """Rows [groups, rows, columns]."""
        self.add_sums(sums_of(rows))

    def add_sums(self, sums: RowSums) -> None:
        squares, linear, count = sums
        self.total += squares
        self.sums += linear
        self.count += count

    def usable(self) -> bool:
        """Whether there are rows, all of them finite."""
        return self.count > 0 and bool(np.isfinite(self.total).all())

    def mean(self) -> np.ndarray:
        """E[x xT], float64."""
        return self.total / max(self.count, 1)


RowSums = tuple[np.ndarray, np.ndarray, int]
"""x xT in float32 and x in float64, each summed over rows, and how many rows."""


def sums_of(rows: np.ndarray) -> RowSums:
    """The sums over rows [groups, rows, columns]."""
    x = rows.astype(np.float32, copy=False)
    return x.swapaxes(1, 2) @ x, x.sum(1, dtype=np.float64), x.shape[1]


def collect_moments(
    graph: Graph,
    sources: Collection[Source],
    samples: Samples,
    *,
    seed: int = 0,
    most_rows: int | None = None,
    passes_for: Collection[Source] = (),
    config: Mapping[str, str] = KEEP_PAIRS,
) -> dict[Source, Moments | KeptRows]:
    """The moments of all sources, or some of their rows, in one pass over the samples.

    `passes_for` are those of all passes, where this is one of several: each pins the tensors of all of them, so that
    their bits do not depend on how many passes there are.

    `most_rows` limits the rows of a source over all samples; None takes `Source.most_rows`. `config` is that of the
    session.
    """
    found: dict[Source, Moments | KeptRows] = {
        source: KeptRows() if source.kept else Moments(source.groups, source.columns) for source in sources
    }
    tensors, pinned = ({source.returned: None for source in each} for each in (found, passes_for))
    tap = Tap(graph, tensors, pinned=pinned, arranged=not pinned.keys() <= tensors.keys(), threads=1, config=config)

    def look(numbered: tuple[int, Feed]) -> list[RowSums | np.ndarray]:
        number, feed = numbered
        values = tap.run(feed, f"sample {samples.numbers[number]}")
        looked: list[RowSums | np.ndarray] = []
        for source in found:
            limit = source.most_rows() if most_rows is None else most_rows
            random = np.random.default_rng((seed, number, zlib.crc32(source.tensor.encode())))
            rows = source.rows.rows(source.values(values[source.returned]), -(-limit // len(samples)), random)
            looked.append(rows.astype(np.float32) if source.kept else sums_of(rows))
        return looked

    for looked in in_threads(look, enumerate(samples)):
        for moments, own in zip(found.values(), looked, strict=True):
            if isinstance(moments, Moments):
                assert isinstance(own, tuple)
                moments.add_sums(own)
            else:
                assert isinstance(own, np.ndarray)
                moments.parts.append(own)
    return found


def together(seen: Sequence[Moments | KeptRows]) -> Moments | KeptRows:
    """What several layers with one weight have seen, which is moments of all or rows of all."""
    if len(seen) == 1:
        return seen[0]
    rows = KeptRows()
    rows.parts = [part for each in seen if isinstance(each, KeptRows) for part in each.parts]
    moments = [each for each in seen if isinstance(each, Moments)]
    if not moments:
        return rows
    whole = Moments(*moments[0].total.shape[:2])
    for each in moments:
        whole.add_sums((each.total, each.sums, each.count))
    return whole


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
