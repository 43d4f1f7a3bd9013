"""The part that LayerNorm and RMSNorm share: values divided by the root of the mean of their squares."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from onnxq.graph import Graph, Node
from onnxq.passes.edits import scalar
from onnxq.passes.rewriter import is_op


class NormParts(NamedTuple):
    """A normalisation without its gamma and beta.

    source          the tensor x that is normalised; `uncast_source` is the one that it was cast from, if it was
    last            the node that makes the normalised values
    centered        whether the mean is subtracted first: LayerNorm, not RMSNorm
    complete        whether gamma and beta are in it already
    """

    source: Any
    uncast_source: Any
    last: Node
    centered: bool
    complete: bool


def find_core(graph: Graph, mean_of_squares: Node) -> NormParts | None:
    """The normalisation whose variance a ReduceMean computes, or None when it computes something else."""
    squared = _squared(graph, mean_of_squares.inputs[0]) if _axes(graph, mean_of_squares) is not None else None
    epsilon = _reader(graph, mean_of_squares.outputs[0], "Add") if squared is not None else None
    if epsilon is None or all(scalar(graph, tensor) is None for tensor in epsilon.inputs):
        return None
    center = _center(graph, squared, mean_of_squares)
    source = squared if center is None else center.inputs[0]
    last, complete = _division(graph, epsilon.outputs[0], squared), False
    if last is None and center is not None:
        last, complete = _shifted_division(graph, epsilon.outputs[0], center), True
    if last is None:
        return None
    return NormParts(source, _uncast(graph, source), last, center is not None, complete)


def _squared(graph: Graph, tensor: Any) -> Any:
    """d when the tensor is d * d or d ^ 2."""
    node = graph.producer(_uncast(graph, tensor))
    if is_op(node, "Pow") and scalar(graph, node.inputs[1]) == 2.0:
        return node.inputs[0]
    if is_op(node, "Mul") and _key(graph, node.inputs[0]) == _key(graph, node.inputs[1]):
        return node.inputs[0]
    return None


def _center(graph: Graph, tensor: Any, mean_of_squares: Node) -> Any:
    """The Sub that takes the mean over the same axes off x, when the tensor is made so."""
    node = graph.producer(_uncast(graph, tensor))
    if not is_op(node, "Sub"):
        return None
    mean = graph.producer(_uncast(graph, node.inputs[1]))
    if not is_op(mean, "ReduceMean") or not _same_axes(graph, mean, mean_of_squares):
        return None
    return node if _key(graph, mean.inputs[0]) == _key(graph, node.inputs[0]) else None


def _division(graph: Graph, variance: Any, numerator: Any) -> Any:
    """The node that divides the numerator by the root of the variance."""
    wanted = _key(graph, numerator)
    root = _root(graph, variance)
    if root is not None:
        quotient = next((n for n in _readers(graph, root, "Div") if _key(graph, n.inputs[0]) == wanted), None)
        if quotient is not None:
            return quotient
    inverse = _inverse_root(graph, variance)
    return None if inverse is None else _product(graph, inverse, wanted)


def _shifted_division(graph: Graph, variance: Any, center: Node) -> Any:
    """The end of x * s + (beta - mean * s) or x * s - mean * s, where s is the inverse root, times gamma or not."""
    inverse = _inverse_root(graph, variance)
    if inverse is None:
        return None
    scaled = next((n for n in _readers(graph, inverse, "Mul") if any(map(graph.is_constant, n.inputs))), None)
    factor = inverse if scaled is None else scaled.outputs[0]
    values = _product(graph, factor, _key(graph, center.inputs[0]))
    means = _product(graph, factor, _key(graph, center.inputs[1]))
    if values is None or means is None:
        return None
    shift = _reader(graph, means.outputs[0], "Sub")
    if shift is None or _key(graph, shift.inputs[0]) == _key(graph, values.outputs[0]):
        return shift
    end = _reader(graph, shift.outputs[0], "Add")
    return end if end is not None and any(tensor is values.outputs[0] for tensor in end.inputs) else None


def _root(graph: Graph, variance: Any) -> Any:
    for node in _readers(graph, variance, "Sqrt", "Pow"):
        if node.op == "Sqrt" or scalar(graph, node.inputs[1]) == 0.5:
            return node.outputs[0]
    return None


def _inverse_root(graph: Graph, variance: Any) -> Any:
    for node in _readers(graph, variance, "Pow"):
        if scalar(graph, node.inputs[1]) == -0.5:
            return node.outputs[0]
    root = _root(graph, variance)
    for node in _readers(graph, root, "Reciprocal", "Div") if root is not None else ():
        if node.op == "Reciprocal" or scalar(graph, node.inputs[0]) == 1.0:
            return node.outputs[0]
    return None


def _product(graph: Graph, factor: Any, other: Hashable) -> Any:
    """The Mul of a tensor with the value that has the key `other`."""
    own = _key(graph, factor)
    for node in _readers(graph, factor, "Mul"):
        keys = [_key(graph, tensor) for tensor in node.inputs]
        if keys in ([own, other], [other, own]):
            return node
    return None


def _readers(graph: Graph, tensor: Any, *ops: str) -> list[Any]:
    """The nodes of these operators that read a tensor, directly or through Casts."""
    found, pending = [], [tensor]
    while pending:
        for use in graph.consumers(pending.pop()):
            if is_op(use.node, *ops):
                found.append(use.node)
            elif is_op(use.node, "Cast"):
                pending.append(use.node.outputs[0])
    return found


def _reader(graph: Graph, tensor: Any, op: str) -> Any:
    return next(iter(_readers(graph, tensor, op)), None)


def _uncast(graph: Graph, tensor: Any) -> Any:
    node = graph.producer(tensor)
    while is_op(node, "Cast"):
        tensor = node.inputs[0]
        node = graph.producer(tensor)
    return tensor


def _key(graph: Graph, tensor: Any, depth: int = 4) -> Hashable:
    """Equal for tensors of equal value as far as Casts, repeated subtractions and repeated means go."""
    tensor = _uncast(graph, tensor)
    node = graph.producer(tensor)
    if depth and is_op(node, "Sub"):
        return ("Sub", *(_key(graph, operand, depth - 1) for operand in node.inputs))
    if depth and is_op(node, "ReduceMean"):
        return ("ReduceMean", _axes(graph, node) or id(node), _key(graph, node.inputs[0], depth - 1))
    return id(tensor)


def _axes(graph: Graph, node: Node) -> tuple[int, ...] | None:
    """The axes of a reduction that keeps its dimensions; None when they are not known or the dimensions go."""
    axes = node.attrs.get("axes")
    if axes is None and len(node.inputs) > 1 and node.inputs[1].name:
        axes = graph.values(node.inputs[1]).tolist() if graph.is_constant(node.inputs[1]) else None
    return None if axes is None or not node.attrs.get("keepdims", 1) else tuple(sorted(axes))


def _same_axes(graph: Graph, first: Node, second: Node) -> bool:
    """Whether two means of tensors of the same rank go over the same axes, counted from either end."""
    left, right = _axes(graph, first), _axes(graph, second)
    if left is None or right is None or left == right:
        return left is not None and left == right
    shape = graph.shape(first.inputs[0]) or graph.shape(second.inputs[0]) or ()
    return bool(shape) and {axis % len(shape) for axis in left} == {axis % len(shape) for axis in right}
