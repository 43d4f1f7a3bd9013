"""How the recognising passes record that nodes belong together, or say why they cannot."""

from __future__ import annotations

from collections.abc import Sequence

from onnxq.graph import Graph, Node
from onnxq.passes.base import PassResult
from onnxq.passes.edits import node_line


def add_unit(graph: Graph, result: PassResult, kind: str, nodes: Sequence[Node]) -> None:
    """Group `nodes` (the last one makes the unit's output) as `kind`; a group that is recorded already adds nothing."""
    names, last = tuple(node.name for node in nodes), nodes[-1]
    known = graph.units.of(last.name)
    if known is not None and known.kind == kind and known.nodes == names:
        return
    leak = find_leak(graph, nodes)
    if leak is not None:
        result.declined.append(node_line(last, f"looks like a {kind}, but {leak}"))
    elif graph.units.add(kind, names):
        result.changed.append(node_line(last, f"ends a {kind} of {len(names)} nodes, beginning with '{names[0]}'"))
    else:
        held = next(unit for unit in map(graph.units.of, names) if unit is not None)
        result.declined.append(node_line(last, f"looks like a {kind}, but shares nodes with a {held.kind}"))


def find_leak(graph: Graph, nodes: Sequence[Node]) -> str | None:
    """Say which value from inside a group is read outside of it; None when only the last node's outputs are."""
    inside = {id(node) for node in nodes}
    for node in nodes[:-1]:
        for tensor in node.outputs:
            if not tensor.name:
                continue
            if graph.is_output(tensor):
                return f"'{tensor.name}' inside of it is an output of the graph"
            outside = next((use.node for use in graph.consumers(tensor) if id(use.node) not in inside), None)
            if outside is not None:
                return f"'{tensor.name}' inside of it is also read by node '{outside.name}'"
    return None
