"""Walk through a large array piece by piece, so that temporaries stay small whatever the size of a weight."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

CHUNK_ELEMENTS = 1 << 18
"""Elements handled at a time: a few MB of temporaries, which also stay in the processor's cache."""


def chunks(shape: Sequence[int], limit: int = CHUNK_ELEMENTS) -> Iterator[tuple[slice, ...]]:
    """Yield indices (one slice for each axis) that cover an array exactly once with at most `limit` elements each.

    A piece is as contiguous as it can be: inner axes are kept whole, the outer ones are walked.
    """
    if prod(shape) == 0:
        return
    split = 0
    while split < len(shape) and prod(shape[split + 1 :]) > limit:
        split += 1
    step = max(1, limit // prod(shape[split + 1 :]))
    steps = [1 if axis < split else step if axis == split else dim for axis, dim in enumerate(shape)]
    pieces = [
        [slice(start, min(start + step, dim)) for start in range(0, dim, step)]
        for step, dim in zip(steps, shape, strict=True)
    ]
    yield from product(*pieces)
