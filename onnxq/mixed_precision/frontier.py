"""Frontiers: of many combinations of choices, those that no other one beats in both cost and loss.

The choices of a unit are its candidate formats, each with an exact cost (whole numbers) and a loss. Where costs and
losses of units add up, the frontier of two units together is the frontier of all sums of a member of the one and a
member of the other, and so on to the frontier of the whole model: dynamic programming for the multiple-choice
knapsack, for all budgets at once. Above MOST members, one member is kept in each of MOST stretches of the cost, that
with the least loss, so the result is exact for models up to some tens of layers and near to it beyond.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

MOST = 4096


@dataclass(frozen=True, eq=False)
class Frontier:
    """Members in order of cost, each with less loss than the one before; `choices` has a row of bits for each.

    names    what the columns of `choices` are about
    """

    names: tuple[str, ...]
    costs: np.ndarray
    losses: np.ndarray
    choices: np.ndarray

    def __len__(self) -> int:
        return len(self.costs)

    def bits(self, number: int) -> dict[str, int]:
        return {name: int(value) for name, value in zip(self.names, self.choices[number], strict=True)}


def frontier(names: Sequence[str], members: Iterable[tuple[int, float, Sequence[int]]]) -> Frontier:
    """The frontier of (cost, loss, bits of `names`)."""
    listed = list(members)
    costs = np.array([cost for cost, _, _ in listed], np.int64)
    losses = np.array([loss for _, loss, _ in listed], np.float64)
    choices = np.array([bits for _, _, bits in listed], np.int16).reshape(len(listed), len(names))
    return _best(tuple(names), costs, losses, choices)


def together(frontiers: Iterable[Frontier], most: int = MOST) -> Frontier:
    """The frontier of units whose costs and losses add up."""
    whole = Frontier((), np.zeros(1, np.int64), np.zeros(1), np.zeros((1, 0), np.int16))
    for other in frontiers:
        left, right = np.divmod(np.arange(len(whole) * len(other)), len(other))
        joined = np.concatenate([whole.choices[left], other.choices[right]], axis=1)
        summed = whole.costs[left] + other.costs[right]
        whole = _best((*whole.names, *other.names), summed, whole.losses[left] + other.losses[right], joined, most)
    return whole


def either(frontiers: Sequence[Frontier]) -> Frontier:
    """The frontier of alternatives for the same names in the same order."""
    return _best(
        frontiers[0].names,
        np.concatenate([item.costs for item in frontiers]),
        np.concatenate([item.losses for item in frontiers]),
        np.concatenate([item.choices for item in frontiers]),
    )


def _best(
    names: tuple[str, ...], costs: np.ndarray, losses: np.ndarray, choices: np.ndarray, most: int = MOST
) -> Frontier:
    order = np.lexsort((losses, costs))
    least = np.minimum.accumulate(losses[order])
    better = np.ones(len(order), bool)
    better[1:] = losses[order][1:] < least[:-1]
    kept = order[better]
    if len(kept) > most:
        # The last of a stretch has the least loss of it; the cheapest member of all stays too.
        span = costs[kept[-1]] - costs[kept[0]]
        stretch = ((costs[kept] - costs[kept[0]]) * (most - 1)) // span
        last = np.append(stretch[1:] != stretch[:-1], True)
        last[0] = True
        kept = kept[last]
    return Frontier(names, costs[kept], losses[kept], choices[kept])
