"""Nodes that provably return their input leave the graph."""

from __future__ import annotations

from collections.abc import Callable

import onnx

from onnxq.graph import Graph, Node
from onnxq.passes.base import PASSES, PassResult
from onnxq.passes.edits import bypass, node_line


@PASSES.register("remove_identity")
def remove_identity(graph: Graph) -> PassResult:
    """Identity(x), Cast to the same type, Transpose in order, Reshape to the same shape, Pad by 0, Concat of one -> x.

    Not where the node connects an input, an initializer or an outer value directly to an output: runtimes want a node
    there.
    """
    result = PassResult()
    done: list[Node] = []
    for node in graph.nodes():
        proof = _PROOFS.get(node.op)
        if proof is None or node.domain or not node.inputs or not proof(graph, node):
            continue
        reason = bypass(graph, node)
        if reason is not None:
            result.declined.append(node_line(node, reason))
            continue
        graph.origins.node_removed(node.name, "it returned its input unchanged")
        result.changed.append(node_line(node, "removed, it returned its input unchanged"))
        done.append(node)
    graph.remove(done)
    return result


def _always(graph: Graph, node: Node) -> bool:
    return True


def _has_one_input(graph: Graph, node: Node) -> bool:
    return len(node.inputs) == 1


def _keeps_type(graph: Graph, node: Node) -> bool:
    dtype = graph.dtype(node.inputs[0])
    return dtype is not None and onnx.helper.np_dtype_to_tensor_dtype(dtype) == node.attrs.get("to")


def _likes_same_type(graph: Graph, node: Node) -> bool:
    dtype, like = graph.dtype(node.inputs[0]), graph.dtype(node.inputs[1])
    return dtype is not None and dtype == like


def _keeps_order(graph: Graph, node: Node) -> bool:
    shape = graph.shape(node.inputs[0])
    order = node.attrs.get("perm")
    if order is None:
        return shape is not None and len(shape) <= 1
    return list(order) == list(range(len(order)))


def _keeps_shape(graph: Graph, node: Node) -> bool:
    shape = graph.shape(node.inputs[0])
    if shape is None or len(node.inputs) < 2 or not graph.is_constant(node.inputs[1]):
        return False
    wanted = graph.values(node.inputs[1]).reshape(-1).tolist()
    copies = 0 if node.attrs.get("allowzero", 0) == 0 else None  # a 0 copies the dimension of the input
    if len(wanted) != len(shape) or wanted.count(-1) > 1:
        return False
    return all(size in (-1, copies) or size == dim for size, dim in zip(wanted, shape, strict=True))


def _is_flat(graph: Graph, node: Node) -> bool:
    shape = graph.shape(node.inputs[0])
    return shape is not None and len(shape) == 2 and node.attrs.get("axis", 1) in (1, -1)


def _pads_nothing(graph: Graph, node: Node) -> bool:
    pads = node.attrs.get("pads")
    if pads is None:
        if len(node.inputs) < 2 or not graph.is_constant(node.inputs[1]):
            return False
        pads = graph.values(node.inputs[1]).reshape(-1).tolist()
    return not any(pads)


_PROOFS: dict[str, Callable[[Graph, Node], bool]] = {
    "Identity": _always,
    "Cast": _keeps_type,
    "CastLike": _likes_same_type,
    "Concat": _has_one_input,
    "Sum": _has_one_input,
    "Mean": _has_one_input,
    "Max": _has_one_input,
    "Min": _has_one_input,
    "Transpose": _keeps_order,
    "Reshape": _keeps_shape,
    "Flatten": _is_flat,
    "Pad": _pads_nothing,
}
