"""Tens of thousands of objects that live on, over which the garbage collector would walk again and again in vain."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Hold the cyclic garbage collector back for the length of the block; loading a large model takes half the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


ALLOCATIONS_PER_COLLECTION = 50_000
"""Of the cyclic garbage collector. A large model is hundreds of thousands of objects that live on: at Python's 700 the
collector takes a sixth of the time of a run on 10,000 nodes."""


@contextmanager
def collector_relaxed() -> Iterator[None]:
    """Let the collector run, but seldom: for long work, which makes graphs and drops them again."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], ALLOCATIONS_PER_COLLECTION) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


ALLOCATIONS_PER_NODE = 60
"""What two copies of a graph take, for each of its nodes."""


def relax_for(nodes: int) -> None:
    """Within `collector_relaxed`, let the garbage of a graph of so many nodes wait: a walk over what lives on takes
    longer the larger the graph is, and would be made more often."""
    first, *others = gc.get_threshold()
    if first >= ALLOCATIONS_PER_COLLECTION:
        gc.set_threshold(max(first, ALLOCATIONS_PER_COLLECTION + ALLOCATIONS_PER_NODE * nodes), *others)
