"""How a broken rule on positions can be met: by the one change of Quark, or by others where that one clips.

Quark moves one tensor for each rule. Where that raises its position, what does not fit any more is clipped; other
tensors of the same rule can be lowered instead, which clips nothing:

    shift_bias above 15   b is raised, or w or i are lowered
    shift_cut below 0     w is raised, or o is lowered
    shift_write, shift_swish above their bounds      o is raised, or inputs are lowered
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from onnxq.targets.amd.dpu_rules import Breach, Positions, Site

Cost = Callable[[Site, Positions], float]
"""The error of an operator's result with its tensors at these positions."""

Moves = Mapping[str, int]
"""Slot -> position, all of them moved at once."""

OF_CONSTANTS = ("shift_cut", "shift_bias")
"""Rules that weights and biases can keep."""


def adjusted(
    breach: Breach, positions: Positions, cost: Cost | None, only: frozenset[str] | None = None
) -> list[Breach]:
    """The changes that end a breach and cost least, as breaches with the slot and position of each.

    Without a cost, and where it clips nothing, that is Quark's own change. `only` names the slots that may move.
    """
    if cost is None or breach.position <= positions[breach.slot]:
        return [breach]
    ways = [way for way in _ways(breach, positions) if only is None or way.keys() <= only]
    best = min(ways, key=lambda way: cost(breach.site, {**positions, **way}), default={breach.slot: breach.position})
    return [replace(breach, slot=slot, position=position) for slot, position in best.items()]


def _ways(breach: Breach, positions: Positions) -> Iterator[Moves]:
    """Every way to meet a rule whose own slot would be raised, Quark's first."""
    yield {breach.slot: breach.position}
    site, missing = breach.site, breach.position - positions[breach.slot]
    if breach.rule == "shift_bias" and site.weight != site.inputs[0]:
        yield from _shared_out(missing, breach.slot, [site.weight, site.inputs[0]], positions)
    elif breach.rule == "shift_cut" and site.output != site.inputs[0]:
        yield from _shared_out(missing, breach.slot, [site.output], positions)
    elif breach.rule not in OF_CONSTANTS:
        lowered = {step.slot: step.position for step in lowering(breach, positions)}
        if lowered:
            yield lowered


def _shared_out(steps: int, raised: str, lowered: list[str | None], positions: Positions) -> Iterator[Moves]:
    """`steps` shared out between one slot that is raised and others that are lowered."""
    names = [slot for slot in lowered if slot is not None]

    def parts(left: int, count: int) -> Iterator[tuple[int, ...]]:
        if count == 0:
            yield ()
            return
        for own in range(left + 1):
            yield from ((own, *rest) for rest in parts(left - own, count - 1))

    for shares in parts(steps, len(names)):
        up = steps - sum(shares)
        moves = {slot: positions[slot] - share for slot, share in zip(names, shares, strict=True) if share}
        yield {**moves, **({raised: positions[raised] + up} if up else {})}


def lowering(breach: Breach, positions: Positions) -> Iterator[Breach]:
    """A breach of activations ended by lowering: its own slot, or the inputs where that would have to be raised."""
    if breach.rule in OF_CONSTANTS:
        return
    if breach.position < positions[breach.slot]:
        yield breach
        return
    inputs = [slot for slot in dict.fromkeys(breach.site.inputs) if slot is not None]
    if breach.rule == "shift_write" and breach.site.op == "Add":
        top = positions[breach.slot] + breach.high
        for slot in inputs:
            if positions[slot] > top:
                yield replace(breach, slot=slot, position=top)
    elif breach.rule in ("shift_write", "shift_swish"):
        largest = max(inputs, key=lambda slot: positions[slot])
        uses = breach.site.inputs.count(largest)
        excess = -(-(breach.value - breach.high) // uses)
        yield replace(breach, slot=largest, position=positions[largest] - excess)
