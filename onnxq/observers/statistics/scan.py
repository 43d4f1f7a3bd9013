"""Reading arrays of any size and dtype in pieces, so that a statistic over gigabytes needs megabytes."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

PIECE_ELEMENTS = 1 << 20
"""Elements converted and counted at a time; temporaries stay within a few dozen megabytes."""


def pieces(shape: tuple[int, ...], limit: int = PIECE_ELEMENTS) -> Iterator[tuple[slice, ...]]:
    """Yield index tuples that cover an array of `shape` once, each selecting at most `limit` elements."""
    axis = next((i for i, size in enumerate(shape) if size > 1), None)
    if axis is None or math.prod(shape) <= limit:
        yield tuple(slice(0, size) for size in shape)
        return
    before = tuple(slice(0, 1) for _ in range(axis))
    inner = math.prod(shape[axis + 1 :])
    step = max(1, limit // inner)
    for start in range(0, shape[axis], step):
        here = slice(start, min(start + step, shape[axis]))
        if inner <= limit:
            yield (*before, here, *(slice(0, size) for size in shape[axis + 1 :]))
        else:
            for after in pieces(shape[axis + 1 :], limit):
                yield (*before, here, *after)


def as_float32(values: np.ndarray) -> np.ndarray:
    """The values as float32, without a copy where they are that already; what float32 cannot hold becomes inf."""
    with np.errstate(over="ignore"):
        return np.asarray(values).astype(np.float32, copy=False)


def other_axes(rank: int, axis: int | None) -> tuple[int, ...]:
    """Every axis but `axis`: the ones a per-channel reduction goes over."""
    return tuple(i for i in range(rank) if i != axis)
