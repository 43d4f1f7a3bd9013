"""What single quantizers do to the outputs, measured: the noise with some of them, while everything else is float.

Noise of different quantizers is nearly independent, so that the noise of parts adds up to that of the whole. A few of
them make most of it, and which ones their own noise does not tell: the chances of a Softmax over 400 tokens have 10 dB
of noise and matter, a gate that is closed has more and does not. To measure each alone takes a run for each, so sets of
them are measured, and the loudest set is halved until what is left in sets is little.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from onnxq.ptq.method import State
from onnxq.types import QuantPlan

MOST_RUNS = 64
"""Measurements at most: halving sets of 200 quantizers down to the ten loudest takes about as many."""

SURE = 0.3
"""Part of the noise of a set that may be told by what is left of it: noise adds up within a tenth of it."""


def with_these_alone(plan: QuantPlan, leaders: Collection[str]) -> QuantPlan:
    """The plan with some quantizers and those that share their scales; all other values are float.

    Their parameters stand in the table: nobody has to lead them.
    """
    kept = {item.tensor: replace(item, tie=None) for item in plan if (item.tie or item.tensor) in leaders}
    return replace(plan, placements=kept, quantized={}, fused={})


def noise_of_parts(
    state: State,
    leaders: Sequence[str],
    loss_of: Callable[[State], float],
    little: float,
    progress: Callable[[str, int, int | None], object],
) -> dict[str, float]:
    """Leader of a scale -> what it adds to the noise of the outputs by their power, the loudest for certain.

    `leaders` come in the order in which they are expected, the loudest first. Those of a set that was not halved have
    equal shares of its noise; what such sets have together is at most `little`, unless there are too many runs.
    """
    runs = 0

    def measured(part: Sequence[str]) -> float:
        nonlocal runs
        runs += 1
        progress("noise of quantizers", runs, None)
        return loss_of(replace(state, plan=with_these_alone(state.plan, frozenset(part))))

    found: dict[str, float] = {}
    sets: list[tuple[float, int, Sequence[str]]] = []

    def take(part: Sequence[str], noise: float) -> None:
        if len(part) == 1:
            found[part[0]] = noise
        elif part:
            heapq.heappush(sets, (-noise, len(found) + len(sets), part))

    take(leaders, measured(leaders) if leaders else 0.0)
    while sets and runs < MOST_RUNS and -sum(noise for noise, _, _ in sets) > little:
        both, _, part = heapq.heappop(sets)
        first, second = part[: len(part) // 2], part[len(part) // 2 :]
        noise = measured(first)
        rest = -both - noise
        take(first, noise)
        take(second, rest if rest > SURE * -both else measured(second))
    for noise, _, part in sets:
        found.update(dict.fromkeys(part, -noise / len(part)))
    return found
