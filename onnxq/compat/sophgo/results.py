"""Which node makes the tensor that a module hands on: its last one, with what runs inside it behind."""

from __future__ import annotations

from collections.abc import Iterable

from onnxq.emit.sophgo_names import LAYERS
from onnxq.graph import Graph, Node


def result_nodes(graph: Graph, names: Iterable[str]) -> list[str]:
    """The nodes among `names` whose results leave them, each replaced by the last node that is fused into it.

    A convolution, the batch normalization behind it and the Relu behind that run as one, and the quantizer stands
    behind the last of them.
    """
    inside = list(names)
    found = [name for name in inside if _leaves(graph, graph.node(name), set(inside))]
    return list(dict.fromkeys(_last_of_chain(graph, graph.node(name)).name for name in found))


def _leaves(graph: Graph, node: Node, inside: set[str]) -> bool:
    readers = [use.node.name for tensor in node.outputs for use in graph.consumers(tensor)]
    return any(graph.is_output(tensor) for tensor in node.outputs) or any(name not in inside for name in readers)


def _last_of_chain(graph: Graph, node: Node) -> Node:
    while (follower := _fused(graph, node)) is not None:
        node = follower
    return node


def _fused(graph: Graph, node: Node) -> Node | None:
    """The one node behind this one that becomes a part of it."""
    if len(node.outputs) != 1 or graph.is_output(node.outputs[0]):
        return None
    uses = graph.consumers(node.outputs[0])
    if len(uses) != 1:
        return None
    follower: Node = uses[0].node
    if follower.op in ("Relu", "Clip"):
        return follower
    if follower.op == "BatchNormalization" and node.op in LAYERS and uses[0].port == 0:
        return follower
    if follower.op == "Add" and node.op == "MatMul" and any(graph.is_constant(tensor) for tensor in follower.inputs):
        return follower  # the bias of a linear layer
    return None
