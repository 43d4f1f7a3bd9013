"""Dropout does nothing at inference and leaves the graph."""

from __future__ import annotations

from onnxq.graph import Graph, Node
from onnxq.passes.base import PASSES, PassResult
from onnxq.passes.edits import bypass, node_line, scalar


@PASSES.register("remove_dropout")
def remove_dropout(graph: Graph) -> PassResult:
    """Dropout(x) -> x; not where the mask is read, or where training_mode is on or decided at run time."""
    result = PassResult()
    done: list[Node] = []
    for node in graph.nodes("Dropout"):
        if node.domain:
            continue
        reason = _active(graph, node) or bypass(graph, node)
        if reason is not None:
            result.declined.append(node_line(node, reason))
            continue
        graph.origins.node_removed(node.name, "Dropout does nothing at inference")
        result.changed.append(node_line(node, "removed, it does nothing at inference"))
        done.append(node)
    graph.remove(done)
    return result


def dropouts_in_training(graph: Graph) -> list[str]:
    """Names of the Dropout nodes that drop values at random whenever the file runs."""
    nodes = [node for node in graph.nodes("Dropout") if not node.domain and len(node.inputs) > 2]
    return [node.name for node in nodes if node.inputs[2].name and scalar(graph, node.inputs[2])]


def _active(graph: Graph, node: Node) -> str | None:
    for mask in node.outputs[1:]:
        if mask.name and (graph.is_output(mask) or graph.consumers(mask)):
            return f"its mask '{mask.name}' is read"
    if len(node.inputs) > 2 and node.inputs[2].name:
        mode = scalar(graph, node.inputs[2])
        if mode is None:
            return f"its training mode '{node.inputs[2].name}' is decided at run time"
        if mode:
            return "it is in training mode"
    return None
