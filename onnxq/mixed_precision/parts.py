"""A plan in parts: layers, or single quantizers, each of which can be quantized alone or left float alone.

    layer       a node that computes, with its weight and bias, what it reads through a quantizer, and the quantizer
                on its result where every reader has it
    quantizer   tensors with one scale

A tensor between two layers may belong to both: as the result of one, and as what the other reads. Parts of a plan are
plans too, with the parameters that the whole plan has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from onnxq.graph import Graph, Node
from onnxq.types import Edge, Placement, QuantPlan

By = Literal["layer", "quantizer"]
Only = Literal["weights", "activations"]
ROLES_OF = {"weights": ("weight", "bias"), "activations": ("activation", "output")}

MOVING = frozenset(
    ("Cast", "Clip", "Concat", "DepthToSpace", "Dropout", "Expand", "Flatten", "Gather", "GlobalMaxPool", "Identity",
     "MaxPool", "Pad", "ReduceMax", "ReduceMin", "Relu", "Reshape", "Resize", "Slice", "SpaceToDepth", "Split",
     "Squeeze", "Tile", "Transpose", "Unsqueeze", "Upsample")
)  # fmt: skip
"""Operators that are no layers where they have one scale on both sides: what comes out are values that went in."""

Share = Mapping[str, tuple[Edge, ...] | None]
"""Tensor -> the uses that read it quantized; None for all of them that the plan has."""


@dataclass(frozen=True)
class Part:
    """A layer or a quantizer: its name, what it is (an operator or a role), its quantizers.

    `nodes` are those that run quantized with a layer; a quantizer alone makes none do so.
    """

    name: str
    kind: str
    share: Share
    nodes: tuple[str, ...]


def layers(graph: Graph, plan: QuantPlan) -> list[Part]:
    """The nodes of a plan that compute something, in the order of the graph, each with its share of the quantizers.

    Nodes that only move values, with one scale on both sides, are part of no layer.
    """
    fused: dict[str, list[str]] = {}
    for follower, lead in plan.fused.items():
        fused.setdefault(lead, []).append(follower)
    found = []
    for node in graph.nodes():
        if node.name not in plan.quantized:
            continue
        nodes = (node.name, *fused.get(node.name, ()))
        share = _share(graph, plan, node, nodes)
        if share and not (node.op in MOVING and _only_moves(graph, plan, share)):
            found.append(Part(node.name, node.op, share, nodes))
    return found


def quantizers(plan: QuantPlan) -> list[Part]:
    """Every quantizer, with all tensors that share its scale."""
    groups: dict[str, list[Placement]] = {}
    for placement in plan:
        if placement.edges != ():
            groups.setdefault(plan.leader(placement.tensor), []).append(placement)
    return [Part(leader, group[0].role, {p.tensor: None for p in group}, ()) for leader, group in groups.items()]


def parts_of(graph: Graph, plan: QuantPlan, by: By, only: Only | None = None) -> list[Part]:
    """Layers or quantizers, with their weights or activations alone where `only` says so."""
    found = layers(graph, plan) if by == "layer" else quantizers(plan)
    if only is None:
        return found
    roles = ROLES_OF[only]
    narrowed = (
        replace(part, share={name: uses for name, uses in part.share.items() if plan[name].role in roles})
        for part in found
    )
    return [part for part in narrowed if part.share]


def _share(graph: Graph, plan: QuantPlan, node: Node, nodes: Sequence[str]) -> dict[str, tuple[Edge, ...] | None]:
    share: dict[str, tuple[Edge, ...] | None] = {}
    for port, tensor in enumerate(node.inputs):
        placement = plan.placements.get(tensor.name)
        edge = Edge(node.name, port)
        if placement is None or (placement.edges is not None and edge not in placement.edges):
            continue
        share[tensor.name] = (*(share.get(tensor.name) or ()), edge)
    for placement in plan:  # a bias may be added by a node behind
        if placement.derive is not None and placement.derive.weight in share:
            share[placement.tensor] = None
    for name in nodes:
        for made in graph.node(name).outputs:
            if made.name in plan and plan[made.name].edges is None:
                share[made.name] = None
    return share


def _only_moves(graph: Graph, plan: QuantPlan, share: Share) -> bool:
    computed = [name for name in share if not graph.is_constant(name)]
    made = any(share[name] is None for name in computed)
    return len(computed) == len(share) > 1 and made and len({plan.leader(name) for name in computed}) == 1


def alone(graph: Graph, plan: QuantPlan, part: Part) -> QuantPlan:
    """The plan with the quantizers of one part, while everything else is float."""
    return _restricted(graph, plan, [part])


def all_but(graph: Graph, plan: QuantPlan, parts: Sequence[Part], left_out: Part) -> QuantPlan:
    """The plan without one of its parts; uses that no part claims stay, such as an input that float nodes read too."""
    others = [part for part in parts if part is not left_out]
    claimed = _joined(parts)
    rest: dict[str, tuple[Edge, ...] | None] = {}
    for placement in plan:
        uses = claimed.get(placement.tensor, set())
        if uses is not None:
            left = tuple(edge for edge in _readers(graph, placement) if edge not in uses)
            rest[placement.tensor] = left if uses else None
    running = {name for part in parts for name in part.nodes}
    unclaimed = tuple(name for name in (*plan.quantized, *plan.fused) if name not in running)
    return _restricted(graph, plan, [*others, Part("", "", rest, unclaimed)])


def _joined(parts: Sequence[Part]) -> dict[str, set[Edge] | None]:
    """Tensor -> the uses that belong to one of the parts; None for all of them."""
    found: dict[str, set[Edge] | None] = {}
    for part in parts:
        for name, edges in part.share.items():
            held = found.get(name, set())
            found[name] = None if edges is None or held is None else {*held, *edges}
    return found


def _restricted(graph: Graph, plan: QuantPlan, parts: Sequence[Part]) -> QuantPlan:
    uses = _joined(parts)
    nodes = {name for part in parts for name in part.nodes}
    placements = {}
    for placement in plan:
        if placement.tensor in uses:
            own = uses[placement.tensor]
            edges = placement.edges if own is None else _edges(graph, placement, own)
            # Its parameters stand in the table: nobody has to lead it.
            placements[placement.tensor] = replace(placement, edges=edges, tie=None)
    return replace(
        plan,
        placements=placements,
        quantized={name: why for name, why in plan.quantized.items() if name in nodes},
        fused={name: lead for name, lead in plan.fused.items() if name in nodes},
    )


def _edges(graph: Graph, placement: Placement, wanted: set[Edge]) -> tuple[Edge, ...] | None:
    """The wanted uses in the order of the graph; None where that is every use of a tensor that is quantized for all."""
    readers = _readers(graph, placement)
    if placement.edges is None and wanted.issuperset(readers) and not graph.is_output(placement.tensor):
        return None
    return tuple(edge for edge in readers if edge in wanted)


def _readers(graph: Graph, placement: Placement) -> tuple[Edge, ...]:
    """The uses that read a tensor quantized."""
    if placement.edges is not None:
        return placement.edges
    return tuple(Edge(use.node.name, use.port) for use in graph.consumers(placement.tensor))
