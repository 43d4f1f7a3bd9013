"""A plan without the tensors that have no range: their quantizers go, and the nodes that read them stay float."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from onnxq.graph import Graph
from onnxq.types import Edge, Placement, QuantPlan
from onnxq.types.reason import Reason


def drop_unseen(graph: Graph, plan: QuantPlan, unseen: Mapping[str, str]) -> QuantPlan:
    """The plan without the leaders in `unseen` (tensor -> reason) and everything that hangs on them.

    Tensors tied to them and biases derived from them lose their quantizers too. A node that read one of these is left
    float with the reason, so its other inputs lose the quantizers that only it read.
    """
    if not unseen:
        return plan
    gone = {name: reason for name in plan.placements if (reason := _reason(plan, name, unseen)) is not None}
    floating: dict[str, Reason] = {}
    for name, reason in gone.items():
        for node in _readers(graph, plan[name]):
            floating.setdefault(node, Reason("no_range", f"its input '{name}' has no range: {reason}"))
    for node, lead in plan.fused.items():
        if lead in floating:
            floating.setdefault(node, Reason("leader_float", f"runs with '{lead}', which stays float"))

    kept = {
        name: _without(graph, placement, floating) for name, placement in plan.placements.items() if name not in gone
    }
    needed = {p.tie for p in kept.values() if p is not None and p.tie is not None}
    needed |= {name for p in kept.values() if p is not None and p.derive is not None for name in p.derive}
    placements = {}
    for name, narrowed in kept.items():
        if narrowed is not None:
            placements[name] = narrowed
        elif name in needed:  # nobody reads it any more, but others take their scale from it
            placements[name] = replace(plan[name], edges=())
    return replace(
        plan,
        placements=placements,
        quantized={node: why for node, why in plan.quantized.items() if node not in floating},
        fused={node: lead for node, lead in plan.fused.items() if node not in floating},
        left_float={**plan.left_float, **floating},
    )


def _reason(plan: QuantPlan, tensor: str, unseen: Mapping[str, str]) -> str | None:
    placement = plan[tensor]
    if placement.derive is not None:
        sources = [plan.leader(name) for name in placement.derive]
    else:
        sources = [plan.leader(tensor)]
    return next((unseen[name] for name in sources if name in unseen), None)


def _readers(graph: Graph, placement: Placement) -> list[str]:
    return list(dict.fromkeys(edge.node for edge in _edges(graph, placement)))


def _edges(graph: Graph, placement: Placement) -> tuple[Edge, ...]:
    if placement.edges is not None:
        return placement.edges
    return tuple(Edge(use.node.name, use.port) for use in graph.consumers(placement.tensor))


def _without(graph: Graph, placement: Placement, floating: Mapping[str, Reason]) -> Placement | None:
    """The placement without the uses by nodes that stay float; None when no use is left."""
    edges = _edges(graph, placement)
    left = tuple(edge for edge in edges if edge.node not in floating)
    if len(left) == len(edges):
        return placement
    if not left and not (placement.edges is None and graph.is_output(placement.tensor)):
        return None
    return replace(placement, edges=left)
