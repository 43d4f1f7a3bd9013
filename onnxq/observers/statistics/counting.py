"""Counting how often each upper half of a float32 occurs, by numpy, or by a compiled loop where numba is installed.

The upper half (sign, exponent, 7 bits of the mantissa) is a number below 65536. Counts come in pages: the 128 patterns
that share sign and exponent. Activations occupy some dozens of the 512 pages.

Both ways give the same counts. The compiled loop is about five times faster but takes a second to load, so it is
loaded beside the work, and only when enough values have gone by to be worth it.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from collections.abc import Callable

import numpy as np

PAGE = 128
"""Patterns of one page."""
PAGES = 512
"""Pages of one row: two signs times 256 exponents."""
PATTERNS = PAGE * PAGES

PIECE = 1 << 19
"""Values counted at a time: numpy's bincount makes an 8-byte copy of what it counts."""
FEW = 4096
"""Up to this many values sorting is cheaper than a table of all patterns."""
WORTH_COMPILING = 500_000_000

_UPPER = 1 if sys.byteorder == "little" else 0

Counts = tuple[np.ndarray, np.ndarray]
"""Occupied pages, ascending, and a (pages, 128) table of their counts, both int64."""


class Counter:
    """Counts float32 values; changes from numpy to the compiled loop on its own."""

    def __init__(self) -> None:
        self._seen = 0
        self._compiled: Callable[[np.ndarray], Counts] | None = None
        self._loading = False
        self._lock = threading.Lock()

    def count(self, values: np.ndarray) -> Counts:
        """Pages and counts of a contiguous float32 array."""
        flat = values.reshape(-1)
        if self._compiled is not None:
            return self._compiled(flat)
        self._seen += flat.size
        if self._seen > WORTH_COMPILING and not self._loading:
            self._begin_loading()
        return count_by_numpy(flat)

    def _begin_loading(self) -> None:
        with self._lock:
            if self._loading:
                return
            self._loading = True
        if importlib.util.find_spec("numba") is not None:
            threading.Thread(target=self._load, name="onnxq-compile", daemon=True).start()

    def _load(self) -> None:
        try:
            compiled = importlib.import_module("onnxq.observers.statistics.counting_compiled").count_compiled
        except ImportError:  # a numba that does not fit the installed numpy; counting by numpy is slower, not worse
            return
        compiled(np.zeros(1, np.float32))  # compiles, or reads what an earlier process compiled
        self._compiled = compiled


def count_by_numpy(flat: np.ndarray) -> Counts:
    """Pages and counts of a contiguous float32 vector."""
    patterns = flat.view(np.uint16)[_UPPER::2]
    if flat.size <= FEW:
        return counts_from_keys(*np.unique(patterns.astype(np.int64), return_counts=True))
    dense = np.bincount(patterns[:PIECE], minlength=PATTERNS)
    for start in range(PIECE, len(patterns), PIECE):
        dense += np.bincount(patterns[start : start + PIECE], minlength=PATTERNS)
    table = dense.reshape(PAGES, PAGE)
    pages = np.flatnonzero(table.any(axis=1))
    return pages, table[pages]


def count_by_row(values: np.ndarray) -> Counts:
    """Pages and counts of every row of a contiguous (rows, n) float32 array; pages are numbered 512 * row + page."""
    patterns = (values.view(np.uint32) >> 16).astype(np.int64)
    patterns += np.arange(len(values), dtype=np.int64)[:, None] * PATTERNS
    size = len(values) * PATTERNS
    if values.size * 8 < size:
        return counts_from_keys(*np.unique(patterns, return_counts=True))
    table = np.bincount(patterns.ravel(), minlength=size).reshape(-1, PAGE)
    pages = np.flatnonzero(table.any(axis=1))
    return pages, table[pages]


def counts_from_keys(keys: np.ndarray, counts: np.ndarray) -> Counts:
    """Pages from single patterns (ascending, each once) and their counts."""
    pages, place = np.unique(keys // PAGE, return_inverse=True)
    table = np.zeros((len(pages), PAGE), np.int64)
    table[place, keys % PAGE] = counts
    return pages, table


COUNTER = Counter()
"""Shared by all statistics, so that small tensors together decide whether compiling pays."""
