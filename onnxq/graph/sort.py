"""Topological order, iteratively and in linear time (graphsurgeon's sort recurses and dies on a deep graph)."""

from __future__ import annotations

import onnx_graphsurgeon as gs

from onnxq.errors import ModelError
from onnxq.graph.nodes import bodies


def sort_nodes(graph: gs.Graph) -> None:
    """Order the nodes of `graph` and of every body inside it; nodes that are in order already do not move.

    A node depends on the producers of its inputs and of everything that its bodies read from outside.
    """
    pending = [graph]
    while pending:
        current = pending.pop()
        if not _in_order(current.nodes):
            current.nodes = _sorted(current.nodes)
        for node in current.nodes:
            pending.extend(bodies(node))


def _in_order(nodes: list[gs.Node]) -> bool:
    """Whether everything that a node reads was made before it; a body that reads from outside counts as unsorted."""
    made: set[int] = set()
    for node in nodes:
        read = [*node.inputs, *captured(node)] if bodies(node) else node.inputs
        for tensor in read:
            if tensor.inputs and id(tensor) not in made:
                return False
        for tensor in node.outputs:
            made.add(id(tensor))
    return True


def _sorted(nodes: list[gs.Node]) -> list[gs.Node]:
    owner = {id(tensor): node for node in nodes for tensor in node.outputs}
    waits_for = {id(node): _dependencies(node, owner) for node in nodes}
    done: set[int] = set()
    entered: set[int] = set()
    ordered: list[gs.Node] = []
    for root in nodes:
        stack = [(root, iter(waits_for[id(root)]))] if id(root) not in done else []
        entered.add(id(root))
        while stack:
            node, rest = stack[-1]
            dependency = next((d for d in rest if id(d) not in done), None)
            if dependency is None:
                stack.pop()
                done.add(id(node))
                ordered.append(node)
            elif id(dependency) in entered:
                circle = ", ".join(f"'{n.name}'" for n, _ in stack[-5:])
                raise ModelError(f"the graph has a cycle through node '{dependency.name}' (path: {circle})")
            else:
                entered.add(id(dependency))
                stack.append((dependency, iter(waits_for[id(dependency)])))
    return ordered


def _dependencies(node: gs.Node, owner: dict[int, gs.Node]) -> list[gs.Node]:
    read = [*node.inputs, *captured(node)] if bodies(node) else node.inputs
    return [owner[id(tensor)] for tensor in read if id(tensor) in owner]


def captured(node: gs.Node) -> list[gs.Tensor]:
    """Tensors read anywhere inside the bodies of `node` (those made inside are included: nobody outside owns them)."""
    read: list[gs.Tensor] = []
    pending = bodies(node)
    while pending:
        body = pending.pop()
        read.extend(body.outputs)
        for inner in body.nodes:
            read.extend(inner.inputs)
            pending.extend(bodies(inner))
    return read
