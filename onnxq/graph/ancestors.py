"""What a tensor depends on."""

from __future__ import annotations

from onnxq.graph.graph import Graph
from onnxq.graph.nodes import bodies
from onnxq.graph.sort import captured


def ancestors(graph: Graph, *tensors: str) -> frozenset[str]:
    """The names of the nodes that tensors depend on; bodies count with the node that they belong to."""
    pending, seen = [graph.tensor(name) for name in tensors], set()
    while pending:
        maker = graph.producer(pending.pop())
        if maker is not None and maker.name not in seen:
            seen.add(str(maker.name))
            pending += [*maker.inputs, *captured(maker)] if bodies(maker) else maker.inputs
    return frozenset(seen)
