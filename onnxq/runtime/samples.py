"""Feeds as single, numbered samples: the same numbers and the same runs however the data was batched or divided.

onnxruntime may round differently for different batch sizes, so samples are run one by one. A feed with several rows is
taken apart where the model shows that its rows do not depend on one another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np

from onnxq.errors import ConfigError, DataError
from onnxq.graph import Graph
from onnxq.runtime.dataset import Dataset
from onnxq.runtime.feeds import Feed
from onnxq.runtime.session import float_session, run_session

RELATIVE, ABSOLUTE = 1e-3, 1e-4
"""How far outputs of single rows may be from those of the batch: rounding, with room for deep models."""


@dataclass(frozen=True)
class Shard:
    """The part `number` (1 .. `count`) of the samples: every `count`-th one."""

    number: int = 1
    count: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.count:
            raise ConfigError(f"a shard is i/n with 1 <= i <= n, such as 1/2 and 2/2, got {self}")

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def holds(self, turn: int) -> bool:
        return turn % self.count == self.number - 1


def read_shard(text: str) -> Shard:
    """A shard from "2/3"."""
    number, slash, count = text.partition("/")
    if not (slash and number.strip().isdigit() and count.strip().isdigit()):
        raise ConfigError(f"a shard is i/n with 1 <= i <= n, such as 1/2 and 2/2, got '{text}'")
    return Shard(int(number), int(count))


HowTaken = Literal["apart", "batch", "one"]
"""Feeds of several rows: run row by row; run whole, as the batch that the model fixes; or run whole as one sample."""


@dataclass(frozen=True)
class Sample:
    """One feed with its number among all samples; `rows` is above 1 for a batch that the model fixes."""

    number: int
    feed: Feed
    rows: int = 1


@runtime_checkable
class Selection(Protocol):
    """Some feeds of a dataset, with their numbers in it."""

    @property
    def numbers(self) -> tuple[int, ...]: ...


class Samples:
    """The samples of a dataset, which can be read again and again.

    Those of a selection have the numbers of its feeds, unless a feed holds several samples.

    `note` is called with what the user should know about how feeds were taken apart.
    """

    def __init__(
        self, graph: Graph, dataset: Iterable[Feed], shard: Shard | None = None, note: Callable[[str], None] = print
    ) -> None:
        self._graph = graph
        # What can be read only once is kept, as samples are read once for each pass and once to see how large they are.
        self._dataset = list(dataset) if isinstance(dataset, Iterator) else dataset
        self.shard = shard or Shard()
        self._note = note
        self._how: HowTaken | None = None
        if self.shard.count > 1 and isinstance(dataset, Dataset) and dataset.source.shuffles:
            raise DataError(
                f"{dataset.description} gives the samples in another order each time, so shards would share some and "
                "leave out others: make it with shuffle=False"
            )

    def __iter__(self) -> Iterator[Sample]:
        for turn, sample in enumerate(self._all()):
            if self.shard.holds(turn):
                yield sample

    def _all(self) -> Iterator[Sample]:
        taken, numbers = 0, self._dataset.numbers if isinstance(self._dataset, Selection) else None
        for count, given in enumerate(self._dataset):
            feed = {name: _native(array) for name, array in given.items()}
            batched, rows = self._batch(feed)
            how = self._taken(feed, batched, rows) if rows > 1 else "one"
            rows = 1 if how == "one" else rows
            number = numbers[count] if numbers is not None and rows == 1 and taken == count else taken
            if how == "apart":
                for row in range(rows):
                    yield Sample(number + row, _row(feed, batched, row))
            else:
                yield Sample(number, feed, rows)
            taken += rows

    def _batch(self, feed: Feed) -> tuple[list[str], int]:
        """The inputs that may be cut along axis 0, and its length: inputs with a free first dimension, if they agree.

        Where no input has one, the inputs are taken as a batch that the model fixes.
        """
        free = [name for name, array in feed.items() if array.ndim and not self._first_is_fixed(name)]
        names = free or [name for name, array in feed.items() if array.ndim]
        lengths = {feed[name].shape[0] for name in names}
        return (free, lengths.pop()) if len(lengths) == 1 else ([], 1)

    def _first_is_fixed(self, name: str) -> bool:
        return isinstance((self._graph.shape(name) or (None,))[0], int)

    def _taken(self, feed: Feed, batched: list[str], rows: int) -> HowTaken:
        """What the rows of feeds are, found out with the first one that has several."""
        if self._how is None:
            if not batched:
                firsts = [(self._graph.shape(name) or (None,))[:1] for name in self._graph.output_names]
                self._how = "batch" if all(first == (rows,) for first in firsts) else "one"
            elif _rows_are_independent(self._graph, feed, batched, rows):
                self._how = "apart"
            else:
                self._how = "one"
                self._note(
                    f"feeds of {rows} rows are run whole and count as one sample: the model gives other outputs for "
                    "single rows, so axis 0 of its inputs is no batch. Ranges may depend on how the data was batched"
                )
        return self._how


def _native(array: np.ndarray) -> np.ndarray:
    """Numbers in the byte order of this machine, which is the only one that onnxruntime knows."""
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _row(feed: Feed, batched: Collection[str], row: int) -> Feed:
    """One row of the inputs that have rows, with the others as they are."""
    return {name: array[row : row + 1] if name in batched else array for name, array in feed.items()}


def _rows_are_independent(graph: Graph, feed: Feed, batched: Collection[str], rows: int) -> bool:
    """Whether the first and the last row alone give what they give inside the batch."""
    session = float_session(graph)
    whole = run_session(session, None, feed, "the first feed")
    for row in (0, rows - 1):
        try:
            alone = run_session(session, None, _row(feed, batched, row), "a single row")
        except DataError:  # the model has the length of the batch built in
            return False
        for together, single in zip(whole, alone, strict=True):
            if not _same_row(together, single, row, rows):
                return False
    return True


def _same_row(together: object, single: object, row: int, rows: int) -> bool:
    if not isinstance(together, np.ndarray) or not isinstance(single, np.ndarray):
        return False
    if together.ndim == 0 or together.shape[0] != rows or single.shape != (1, *together.shape[1:]):
        return False
    expected = together[row : row + 1]
    if expected.dtype.kind not in "fc":
        return bool(np.array_equal(expected, single))
    size = float(np.max(np.abs(expected), initial=0.0, where=np.isfinite(expected)))
    return bool(np.allclose(single, expected, rtol=RELATIVE, atol=ABSOLUTE * size, equal_nan=True))
