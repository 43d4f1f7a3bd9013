"""The counting loop compiled by numba; imported only where numba is installed and there is enough to count."""

from __future__ import annotations

import threading

import numba
import numpy as np

from onnxq.observers.statistics.counting import PAGE, PAGES, PATTERNS, Counts


class _Scratch(threading.local):
    """Working memory of one thread; `counters` is all zero between two calls.

    Each of the two counters sees every other value, so 32 bits hold what an array of 34 GB can give.
    """

    def __init__(self) -> None:
        self.counters = np.zeros((2, PATTERNS), np.uint32)
        self.pages = np.empty(PAGES, np.int64)
        self.table = np.empty((PAGES, PAGE), np.int64)


_scratch = _Scratch()


def count_compiled(flat: np.ndarray) -> Counts:
    """Pages and counts of a contiguous float32 vector; other threads go on while it counts."""
    used = _count(flat.view(np.uint32), _scratch.counters, _scratch.pages, _scratch.table)
    return _scratch.pages[:used].copy(), _scratch.table[:used].copy()


@numba.njit(nogil=True, cache=True)
def _count(bits: np.ndarray, counters: np.ndarray, pages: np.ndarray, table: np.ndarray) -> int:
    # Two counters in turn: a run of equal values (the zeros of a Relu) would wait for its own last addition.
    half = len(bits) // 2
    for i in range(half):
        counters[0, bits[2 * i] >> 16] += 1
        counters[1, bits[2 * i + 1] >> 16] += 1
    if 2 * half < len(bits):
        counters[0, bits[2 * half] >> 16] += 1
    used = 0
    for page in range(PAGES):
        start = page * PAGE
        occupied = 0
        for k in range(start, start + PAGE):
            occupied |= counters[0, k] | counters[1, k]
        if occupied:
            pages[used] = page
            for k in range(PAGE):
                table[used, k] = np.int64(counters[0, start + k]) + np.int64(counters[1, start + k])
                counters[0, start + k] = 0
                counters[1, start + k] = 0
            used += 1
    return used
