"""Inputs that are the same in every sample: a mistake in the data, or an input that need not be one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from onnxq.runtime.feeds import Feed
from onnxq.types.note import Note

_START = 256
"""Elements compared first: different samples usually differ there, and the rest need not be read."""


class InputWatch:
    """Notices inputs that never change."""

    def __init__(self) -> None:
        self._first: Feed | None = None
        self._same: set[str] = set()
        self._count = 0

    def see(self, feed: Feed) -> None:
        self._count += 1
        if self._first is None:
            self._first = {name: np.array(array) for name, array in feed.items()}
            self._same = set(feed)
            return
        self._same = {name for name in self._same if _equal(self._first[name], feed[name])}
        self._first = {name: self._first[name] for name in self._same}

    def notes(self) -> Iterator[Note]:
        if self._count < 2 or self._first is None:
            return
        for name in sorted(self._same):
            array = self._first[name]
            constant = array.size > 0 and bool((array == array.reshape(-1)[0]).all())
            what = f"is {array.reshape(-1)[0]} everywhere" if constant else "is the same"
            yield Note(
                "same_input", f"input '{name}' {what} in every sample: is the calibration data what it should be?"
            )


def _equal(first: np.ndarray, second: np.ndarray) -> bool:
    if first.shape != second.shape:
        return False
    one, other = first.reshape(-1), second.reshape(-1)
    return bool(np.array_equal(one[:_START], other[:_START]) and np.array_equal(one, other))
