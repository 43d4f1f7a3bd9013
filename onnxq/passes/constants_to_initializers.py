"""Constant nodes become initializers of the graph that holds them, under the same tensor name."""

from __future__ import annotations

from onnxq.graph import Graph
from onnxq.passes.base import PASSES, PassResult
from onnxq.passes.edits import Folding, held_values, node_line


@PASSES.register("constants_to_initializers")
def constants_to_initializers(graph: Graph) -> PassResult:
    """Constant(value | value_float(s) | value_int(s) | value_string(s)) -> initializer; large values stay unread.

    Not where the value is an output of its graph, which a node has to make, and not for sparse values.
    """
    result = PassResult()
    folding = Folding(graph)
    for node in graph.nodes("Constant"):
        if node.domain:
            continue
        tensor = node.outputs[0]
        if "sparse_value" in node.attrs:
            result.declined.append(node_line(node, "its value is sparse"))
        elif graph.is_output(tensor):
            result.declined.append(node_line(node, f"its value is the output '{tensor.name}' of the graph"))
        else:
            folding.become_constant(tensor, held_values(graph, tensor), graph.scope_of(node))
            folding.discard(node, f"its value is the initializer '{tensor.name}' now")
            result.changed.append(node_line(node, f"became the initializer '{tensor.name}'"))
    folding.finish()
    return result
