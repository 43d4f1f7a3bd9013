"""Which nodes leave 8 bits so that the noise of the outputs comes down to what is wanted, for the least work.

Each tensor with a scale adds noise, which is gone when all nodes around it have left. What pays most is taken first,
the noise that goes by the work that leaves 8 bits, until what is left is little enough; then what turned out not to be
needed is given back, the most expensive first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Remedy:
    """What takes away the noise of one tensor: `nodes` leave 8 bits; none where its own format changes instead."""

    noise: float
    nodes: frozenset[str]


def cheapest(
    remedies: Mapping[str, Remedy], costs: Mapping[str, float], excess: float, layers: frozenset[str], most: int
) -> list[str]:
    """The tensors whose remedies together take away the noise `excess`, or all that can be had.

    `costs` has the nodes; at most `most` of the `layers` leave.
    """
    found: dict[str, Remedy] = {}
    gone: set[str] = set()
    by_node: dict[str, list[str]] = {}
    for tensor, remedy in remedies.items():
        for node in remedy.nodes:
            by_node.setdefault(node, []).append(tensor)

    def price(remedy: Remedy) -> float:
        return sum(costs[node] for node in remedy.nodes - gone)

    def worth(tensor: str, remedy: Remedy) -> float:
        """The noise that goes with it, that of other tensors around the same nodes included."""
        near = {tensor, *(other for node in remedy.nodes for other in by_node[node])}
        return sum(remedies[other].noise for other in near if remedies[other].nodes <= (remedy.nodes | gone))

    left = dict(remedies)
    while excess > _taken(remedies, gone, found) and left:
        fits = {name: it for name, it in left.items() if len(layers & (it.nodes | gone)) <= most}
        if not fits:
            break
        chosen = max(fits, key=lambda name: worth(name, fits[name]) / max(price(fits[name]), _NOTHING))
        found[chosen] = left.pop(chosen)
        gone |= found[chosen].nodes
        left = {name: it for name, it in left.items() if not it.nodes or not it.nodes <= gone}
    return list(_needed(found, remedies, costs, excess))


_NOTHING = 1e-9
"""A price that is nothing, beside those of nodes."""


def _taken(remedies: Mapping[str, Remedy], gone: Iterable[str], found: Mapping[str, Remedy]) -> float:
    nodes = frozenset(gone)
    return sum(it.noise for name, it in remedies.items() if name in found or (it.nodes and it.nodes <= nodes))


def _needed(
    found: dict[str, Remedy], remedies: Mapping[str, Remedy], costs: Mapping[str, float], excess: float
) -> dict[str, Remedy]:
    """What is left when everything is given back without which the excess is gone as well."""
    needed = dict(found)
    for tensor in sorted(found, key=lambda name: -sum(costs[node] for node in found[name].nodes)):
        others = {name: it for name, it in needed.items() if name != tensor}
        gone = frozenset(node for it in others.values() for node in it.nodes)
        if found[tensor].nodes <= gone:
            continue
        if _taken(remedies, gone, others) >= excess:
            needed = others
    return needed
