"""Counting many small tensors over many runs: one call for a run, instead of one for each tensor in it.

A tensor of some hundred values is counted in less time than it takes to call a function and to add up what it gives.
So each thread has a counter of its own, which hands its counts on when the thread has nothing more to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from onnxq.observers.statistics.counting import PAGE, PAGES, Counts, count_many

_FIRST_PAGES = 4 * PAGES
_MOST_COUNTED = 2**31
"""Values of one tensor: more would not surely fit into a counter of 32 bits."""


class CountsTogether:
    """Counts of tensors that lie at `edges` (n, 2) of a float32 vector in every run; `counting` says what pages are."""

    def __init__(self, tensors: Sequence[str], edges: np.ndarray) -> None:
        self.tensors = list(tensors)
        self._edges = np.ascontiguousarray(edges, np.int64).reshape(-1, 2)
        self._longest = int((self._edges[:, 1] - self._edges[:, 0]).max(initial=0))
        self._counted = 0
        self._reset()

    @staticmethod
    def possible() -> bool:
        """Whether the part in C is there, without which this saves nothing."""
        return count_many is not None

    def _reset(self) -> None:
        self._index = np.full((len(self.tensors), PAGES), -1, np.int32)
        self._pool = np.zeros((_FIRST_PAGES, PAGE), np.uint32)
        self._used = self._counted = 0

    @property
    def full(self) -> bool:
        """Whether the counts have to be taken before another run."""
        return self._counted + self._longest >= _MOST_COUNTED

    def count(self, values: np.ndarray, which: np.ndarray) -> None:
        """Count the tensors with the numbers `which` (int64), whose values are all finite, in one run."""
        assert count_many is not None, "there is nothing to count with: ask `possible`"
        self._counted += self._longest
        while True:
            done, self._used = count_many(values, self._edges, which, self._index, self._pool, self._used)
            which = which[done:]
            if not len(which):
                return
            grown = np.zeros((2 * len(self._pool), PAGE), np.uint32)
            grown[: len(self._pool)] = self._pool
            self._pool = grown

    def take(self) -> Iterator[tuple[str, Counts]]:
        """Tensor -> its counts since the last time; nothing for one that was not counted."""
        index, pool, used = self._index, self._pool, self._used
        self._reset()
        if not used:
            return
        for tensor, slots in zip(self.tensors, index, strict=True):
            pages = np.flatnonzero(slots >= 0)
            if len(pages):
                yield tensor, (pages, pool[slots[pages]].astype(np.int64))
