"""Memory for one large array after the other: what one has left is taken by the next.

An array of a hundred megabytes costs more than what is computed in it where the system hands out its pages anew, and
those of weights that are read several times, each when its turn comes, are all alike.
"""

from __future__ import annotations

import mmap
import threading
import weakref
from math import prod

import numpy as np


class SpareMemory:
    """At most one free block; arrays are given out with undefined values, and their block comes back when nobody, no
    view of them either, holds them any more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: mmap.mmap | None = None

    def __reduce__(self) -> tuple[type[SpareMemory], tuple[()]]:
        return SpareMemory, ()

    def array(self, shape: tuple[int, ...]) -> np.ndarray:
        """A float32 array."""
        size = 4 * prod(shape)
        with self._lock:
            block, self._free = self._free, None
        if block is None or not size <= len(block) <= 2 * size:
            block = mmap.mmap(-1, max(size, 1))
            if hasattr(mmap, "MADV_HUGEPAGE"):
                block.madvise(mmap.MADV_HUGEPAGE)
        whole = np.frombuffer(block, np.float32, prod(shape))
        weakref.finalize(whole, self._take_back, block).atexit = False
        return whole.reshape(shape)

    def _take_back(self, block: mmap.mmap) -> None:
        with self._lock:
            self._free = block
