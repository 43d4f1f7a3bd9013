"""Where places along an axis are after a Reshape, from the shapes before and behind it."""

from __future__ import annotations

import math
from collections.abc import Sequence

Shape = Sequence[int | str | None]


def place_after(before: Shape, after: Shape, axis: int, places: Sequence[int]) -> tuple[int, tuple[int, ...]] | None:
    """The axis and the indices at which the values at `places` of an axis begin; None where that is in many places.

    Values keep their order: what is cut along the first axis of [6, 5] at 4 is cut at 20 in [30], and at 2 in [3, 10];
    what is cut along its second axis is cut six times in [30].
    """
    front = _equal(before, after)
    behind = _equal(before[front:][::-1], after[front:][::-1])
    if axis < front:
        return axis, tuple(places)
    if axis >= len(before) - behind:
        return axis + len(after) - len(before), tuple(places)
    old, new = _known(before[front : len(before) - behind]), _known(after[front : len(after) - behind])
    if old is None or new is None or math.prod(old) != math.prod(new):
        return None
    # Axes that stay in order are groups with the same number of values.
    first, second = 0, 0
    while first < len(old):
        old_end, new_end = _group(old, new, first, second)
        if first <= axis - front < old_end:
            inside = _within(old[first:old_end], new[second:new_end], axis - front - first, places)
            return None if inside is None else (inside[0] + front + second, inside[1])
        first, second = old_end, new_end
    return None


def _equal(before: Shape, after: Shape) -> int:
    """How many axes at the front are the same; sizes that nobody knows are not."""
    count = 0
    for one, other in zip(before, after, strict=False):
        if one is None or one != other:
            break
        count += 1
    return count


def _known(shape: Shape) -> list[int] | None:
    sizes = [size for size in shape if isinstance(size, int) and size > 0]
    return sizes if len(sizes) == len(shape) else None


def _group(old: list[int], new: list[int], first: int, second: int) -> tuple[int, int]:
    """The ends of the smallest groups of axes from here on that hold as many values as each other."""
    old_end, new_end = first + 1, min(second + 1, len(new))
    while (held := math.prod(old[first:old_end])) != (needed := math.prod(new[second:new_end])):
        if held < needed:
            old_end += 1
        else:
            new_end += 1
    # Axes of length 1 at the end belong to nobody.
    while old_end < len(old) and new_end == len(new):
        old_end += 1
    return old_end, new_end


def _within(old: list[int], new: list[int], axis: int, places: Sequence[int]) -> tuple[int, tuple[int, ...]] | None:
    if math.prod(old[:axis]) != 1:
        return None
    flat = [place * math.prod(old[axis + 1 :]) for place in places]
    for number, size in enumerate(new):
        step = math.prod(new[number + 1 :])
        if size > 1 or number == len(new) - 1:
            return (number, tuple(place // step for place in flat)) if not any(place % step for place in flat) else None
    return None
