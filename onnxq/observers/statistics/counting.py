"""Counting how often each upper half of a float32 occurs: in C where that was built, otherwise by numpy.

The upper half (sign, exponent, 7 bits of the mantissa) is a number below 65536. Counts come in pages: the 128 patterns
that share sign and exponent. Activations occupy some dozens of the 512 pages. NaN and infinities are left out, and
-0.0 counts as 0.0.

Both ways give the same counts; C is about five times faster. `_counting.c` is built when onnxq is installed, unless
there is no compiler.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

import numpy as np

try:
    import onnxq.observers.statistics._counting as compiled
except ImportError:
    compiled = None

PAGE = 128
"""Patterns of one page."""
PAGES = 512
"""Pages of one row: two signs times 256 exponents."""
PATTERNS = PAGE * PAGES

PIECE = 1 << 19
"""Values counted at a time by numpy, whose bincount makes an 8-byte copy of what it counts."""
FEW = 4096
"""Up to this many values sorting is cheaper than a table of all patterns."""

LONG_ROW = 256
"""Shorter rows are counted faster all at once than each by a call of its own."""

NEGATIVE_PAGE = PAGES // 2
"""The first page of negative numbers."""

_UPPER = 1 if sys.byteorder == "little" else 0

Counts = tuple[np.ndarray, np.ndarray]
"""Occupied pages, ascending, and a (pages, 128) table of their counts, both int64."""


class _Scratch(threading.local):
    """Working memory of one thread; `counters` is all zero between two calls.

    Each of the two counters sees every other value, so 32 bits hold what an array of 34 GB can give.
    """

    def __init__(self) -> None:
        self.counters = np.zeros((2, PATTERNS), np.uint32)
        self.pages = np.empty(PAGES, np.int64)
        self.table = np.empty((PAGES, PAGE), np.int64)


_scratch = _Scratch()


def count_in_c(flat: np.ndarray) -> Counts:
    """Pages and counts of a contiguous float32 vector; other threads go on while this works."""
    used = compiled.count(flat, _scratch.counters, _scratch.pages, _scratch.table)
    return _scratch.pages[:used].copy(), _scratch.table[:used].copy()


def count_by_numpy(flat: np.ndarray) -> Counts:
    """Pages and counts of a contiguous float32 vector."""
    patterns = flat.view(np.uint16)[_UPPER::2]
    if flat.size <= FEW:
        return _finite(*counts_from_keys(*np.unique(patterns.astype(np.int64), return_counts=True)))
    dense = np.bincount(patterns[:PIECE], minlength=PATTERNS)
    for start in range(PIECE, len(patterns), PIECE):
        dense += np.bincount(patterns[start : start + PIECE], minlength=PATTERNS)
    return _finite(*_occupied_pages(dense))


COMPILED = compiled is not None
"""Whether counting is done in C."""

count_many: Callable[..., tuple[int, int]] | None = getattr(compiled, "count_many", None)
"""Counts many tensors in one call (`counting_together`); None where the part in C was not built, or is an older one."""

count_patterns: Callable[[np.ndarray], Counts] = count_in_c if COMPILED else count_by_numpy
"""Pages and counts of a contiguous float32 vector."""


def count_by_row(values: np.ndarray) -> Counts:
    """Pages and counts of every row of a contiguous (rows, n) float32 array; pages are numbered 512 * row + page."""
    if COMPILED and values.shape[1] >= LONG_ROW:
        counted = [count_in_c(row) for row in values]
        pages = [found + PAGES * row for row, (found, _) in enumerate(counted)]
        return np.concatenate(pages), np.concatenate([table for _, table in counted])
    return count_rows_by_numpy(values)


def count_rows_by_numpy(values: np.ndarray) -> Counts:
    """The same for all rows at once."""
    patterns = (values.view(np.uint32) >> 16).astype(np.int64)
    patterns += np.arange(len(values), dtype=np.int64)[:, None] * PATTERNS
    size = len(values) * PATTERNS
    if values.size * 8 < size:
        return _finite(*counts_from_keys(*np.unique(patterns, return_counts=True)))
    return _finite(*_occupied_pages(np.bincount(patterns.ravel(), minlength=size)))


def _occupied_pages(dense: np.ndarray) -> Counts:
    table = dense.reshape(-1, PAGE)
    pages = np.flatnonzero(table.any(axis=1))
    return pages, table[pages]


def _finite(pages: np.ndarray, table: np.ndarray) -> Counts:
    """Without NaN and infinities, and with -0.0 counted as 0.0."""
    within = pages % PAGES
    bad = within % NEGATIVE_PAGE == NEGATIVE_PAGE - 1
    if bad.any():
        pages, table, within = pages[~bad], table[~bad], within[~bad]
    minus = within == NEGATIVE_PAGE
    minus[minus] = table[minus, 0] > 0
    if not minus.any():
        return pages, table
    plus = pages[minus] - NEGATIVE_PAGE
    missing = np.setdiff1d(plus, pages)
    if len(missing):
        place = np.searchsorted(pages, missing)
        pages, minus = np.insert(pages, place, missing), np.insert(minus, place, False)
        table = np.insert(table, place, 0, axis=0)
    table[np.searchsorted(pages, plus), 0] += table[minus, 0]
    table[minus, 0] = 0
    left = table.any(axis=1)
    return pages[left], table[left]


def add_counts(into: Counts, more: Counts) -> Counts:
    """The counts of both; where `into` has all the pages already, its table is changed and nothing is copied."""
    pages, table = into
    if COMPILED and compiled.add(pages, table, more[0], more[1]):
        return into
    united = np.union1d(pages, more[0])
    if len(united) != len(pages):
        grown = np.zeros((len(united), PAGE), np.int64)
        grown[np.searchsorted(united, pages)] = table
        pages, table = united, grown
    table[np.searchsorted(pages, more[0])] += more[1]
    return pages, table


def counts_from_keys(keys: np.ndarray, counts: np.ndarray) -> Counts:
    """Pages from single patterns (ascending, each once) and their counts."""
    pages, place = np.unique(keys // PAGE, return_inverse=True)
    table = np.zeros((len(pages), PAGE), np.int64)
    table[place, keys % PAGE] = counts
    return pages, table
