"""Nodes whose results nobody reads leave the graph, and with them the initializers that only they read."""

from __future__ import annotations

from onnxq.graph import Graph
from onnxq.passes.base import PASSES, PassResult


@PASSES.register("remove_dead")
def remove_dead(graph: Graph) -> PassResult:
    """Remove what no output depends on, in bodies too; a value that a body captures counts as read."""
    operators = {node.name: node.op for node in graph.nodes()}
    initializers = [constant.name for constant in graph.constants()]
    result = PassResult()
    for name in graph.remove_dead():
        graph.origins.node_removed(name, "nobody reads its results")
        result.changed.append(f"node '{name}' ({operators[name]}): removed, nobody reads its results")
    gone = [name for name in initializers if not graph.has_tensor(name)]
    result.changed.extend(f"initializer '{name}': removed, nobody reads it" for name in gone)
    return result
