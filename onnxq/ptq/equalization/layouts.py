"""Arrays that say something about each channel, and how moving values about moves them.

They broadcast to the shape of their tensor; an axis along which nothing changes has length 1, and a single number holds
for the whole tensor. Variables and shifts both come as such arrays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

LARGEST = 2**24
"""Entries of a layout: more would be a mistake, not a network."""

Shape = Sequence[int | str | None]


def vector_along(layout: np.ndarray, axis: int, size: int, rank: int) -> np.ndarray | None:
    """One entry for each index along an axis; None where entries change along another one."""
    if layout.ndim == 0:
        return np.broadcast_to(layout, (size,))
    if layout.ndim != rank:
        return None
    axis %= rank
    if any(length != 1 for position, length in enumerate(layout.shape) if position != axis):
        return None
    return np.broadcast_to(layout.reshape(-1), (size,)) if layout.size in (1, size) else None


def on_axis(vector: np.ndarray, axis: int, rank: int) -> np.ndarray:
    """The layout of a tensor whose entries change along one axis."""
    return vector.reshape([-1 if position == axis % rank else 1 for position in range(rank)])


def of_constant(layout: np.ndarray, shape: Sequence[int]) -> np.ndarray | None:
    """The part of a layout that meets a constant which is broadcast against the tensor; None where it has more."""
    if layout.ndim == 0:
        return layout
    extra = layout.ndim - len(shape)
    if extra < 0:
        return None
    aligned = (1,) * extra + tuple(shape)
    if any(length not in (1, held) for length, held in zip(layout.shape, aligned, strict=True)):
        return None
    return layout.reshape(layout.shape[extra:])


def reshaped(layout: np.ndarray, before: Shape, after: Shape) -> np.ndarray | None:
    """The layout of a tensor whose values were given another shape in their order; None where that cannot be said.

    Only the axes from the first one that matters have to be known: those in front, such as the batch, may be anything.
    """
    if layout.size == 1:
        return layout.reshape(())
    first = next(axis for axis, length in enumerate(layout.shape) if length > 1)
    inner = _known(before[first:])
    if inner is None or math.prod(inner) > LARGEST:
        return None
    wanted = math.prod(inner)
    for start in reversed(range(len(after))):
        outer = _known(after[start:])
        if outer is None or math.prod(outer) > wanted:
            return None
        if math.prod(outer) == wanted:
            spread = np.broadcast_to(layout.reshape(layout.shape[first:]), inner).reshape(outer)
            return _compressed(spread.reshape((1,) * start + outer))
    return None


def _known(shape: Shape) -> tuple[int, ...] | None:
    sizes = tuple(size for size in shape if isinstance(size, int))
    return sizes if len(sizes) == len(shape) else None


def _compressed(layout: np.ndarray) -> np.ndarray:
    """The same layout with length 1 along every axis on which nothing changes."""
    for axis in range(layout.ndim):
        first = layout.take([0], axis)
        if np.array_equal(np.broadcast_to(first, layout.shape), layout):
            layout = first
    return layout
