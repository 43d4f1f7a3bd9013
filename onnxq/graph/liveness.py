"""Which nodes of a graph contribute to an output."""

from __future__ import annotations

import onnx_graphsurgeon as gs

from onnxq.graph.sort import captured


def dead_nodes(scope: gs.Graph) -> list[gs.Node]:
    """Nodes of one scope from which no output of that scope can be reached; what living bodies read is alive."""
    maker = {id(tensor): node for node in scope.nodes for tensor in node.outputs}
    alive: set[int] = set()
    pending = [maker[id(tensor)] for tensor in scope.outputs if id(tensor) in maker]
    while pending:
        node = pending.pop()
        if id(node) not in alive:
            alive.add(id(node))
            pending.extend(maker[id(tensor)] for tensor in [*node.inputs, *captured(node)] if id(tensor) in maker)
    return [node for node in scope.nodes if id(node) not in alive]
