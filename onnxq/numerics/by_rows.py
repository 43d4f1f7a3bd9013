"""Large weights some rows at a time, so that they pass through caches, and the pages of mapped files out of memory."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from math import lcm, prod
from types import EllipsisType

import numpy as np

from onnxq.types.granularity import Granularity, PerBlock, PerChannel, PerTensor, resolve_axis

PIECE_ELEMENTS = 1 << 20
"""Values of a large weight that are looked at together."""

ROWS_ALIGNED = 8
"""Pieces hold a multiple of so many rows, so that numbers of few bits fill whole bytes in each."""


def row_pieces(shape: Sequence[int], granularity: Granularity) -> Iterator[tuple[slice, slice | EllipsisType]]:
    """Rows of a weight that hold whole cells, and the rows of its scales that are theirs (for one scale: all).

    A weight of gigabytes is gone through in pieces that fit into caches.
    """
    rows, inner = shape[0], max(1, prod(shape[1:]))
    along_rows = not isinstance(granularity, PerTensor) and resolve_axis(granularity.axis, len(shape)) == 0
    unit = granularity.size if along_rows and isinstance(granularity, PerBlock) else 1
    step = max(1, PIECE_ELEMENTS // (inner * lcm(unit, ROWS_ALIGNED))) * lcm(unit, ROWS_ALIGNED)
    shared = isinstance(granularity, PerTensor) or (isinstance(granularity, PerChannel) and not along_rows)
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        yield slice(start, stop), ... if shared else slice(start // unit, -(-stop // unit))


def let_go(values: np.ndarray) -> None:
    """Give the pages of a mapped file back that reading `values` has brought into memory; reading goes on as before."""
    held: object = values
    while isinstance(held, np.ndarray):
        held = held.base
    if isinstance(held, memoryview):
        held = held.obj
    if isinstance(held, mmap.mmap) and hasattr(held, "madvise") and memoryview(held).readonly:
        held.madvise(mmap.MADV_DONTNEED)
