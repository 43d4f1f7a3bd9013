"""Groups of quantized nodes that are timed in float together: by operator, by region, and by parts of a region.

What a kernel costs depends on its operator first of all, and what a conversion costs on where integers end. So the
groups are: all nodes of an operator; a region, which is a connected part of the graph that is quantized; and halves of
a region, in the order of the graph, down to an eighth.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from onnxq.graph import Graph, Node
from onnxq.types import QuantPlan

DEEPEST = 3
"""How often a region is cut in half."""

LEAST_LAYERS = 4
"""Quantized nodes that a half has at least: where fewer are float, conversions cost more than kernels gain."""


class Group(NamedTuple):
    name: str
    nodes: tuple[str, ...]


def groups(graph: Graph, plan: QuantPlan) -> list[Group]:
    """All groups, each set of nodes once, never all that is quantized."""
    graph.sort()
    nodes = [node for node in graph.nodes() if node.name in plan.quantized]
    whole = frozenset(node.name for node in nodes)
    found: dict[frozenset[str], Group] = {}
    for group in (*_by_operator(graph, nodes), *_by_region(graph, plan, nodes)):
        found.setdefault(frozenset(group.nodes), group)
    return [group for held, group in found.items() if held != whole]


def _by_operator(graph: Graph, nodes: Sequence[Node]) -> Iterator[Group]:
    by_kind: dict[str, list[str]] = {}
    for node in nodes:
        by_kind.setdefault(_kind(graph, node), []).append(node.name)
    for kind, names in by_kind.items():
        yield Group(f"all {kind}", tuple(names))


def _kind(graph: Graph, node: Node) -> str:
    """The operator, divided further where onnxruntime has other kernels."""
    if node.op == "Conv" and int(node.attrs.get("group", 1)) > 1:
        return "Conv with groups"
    if node.op == "MatMul" and not any(graph.is_constant(tensor) for tensor in node.inputs):
        return "MatMul of two activations"
    return str(node.op)


def _by_region(graph: Graph, plan: QuantPlan, nodes: Sequence[Node]) -> Iterator[Group]:
    regions = _regions(graph, plan, nodes)
    for names in regions:
        yield Group(_span("region", names), names)
    for names in regions:
        parts = [names]
        for _ in range(DEEPEST):
            parts = [half for part in parts for half in _halves(part)]
            yield from (Group(_span("part", half), half) for half in parts)


def _span(what: str, names: Sequence[str]) -> str:
    return f"{what} '{names[0]}' to '{names[-1]}'" if len(names) > 1 else f"{what} '{names[0]}'"


def _halves(names: tuple[str, ...]) -> list[tuple[str, ...]]:
    middle = len(names) // 2
    return [names[:middle], names[middle:]] if middle >= LEAST_LAYERS else []


def _regions(graph: Graph, plan: QuantPlan, nodes: Sequence[Node]) -> list[tuple[str, ...]]:
    """Quantized nodes that are connected by tensors which only quantized and fused nodes lie between."""
    inside = {*plan.quantized, *plan.fused}
    parent = {name: name for name in inside}

    def root(name: str) -> str:
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for name in inside:
        for tensor in graph.node(name).outputs:
            for use in graph.consumers(tensor):
                if use.node.name in inside:
                    parent[root(use.node.name)] = root(name)
    regions: dict[str, list[str]] = {}
    for node in nodes:
        regions.setdefault(root(node.name), []).append(node.name)
    return sorted((tuple(names) for names in regions.values()), key=len, reverse=True)
