"""What a node clamps its input to: Relu, Clip in both its forms, Min and Max with a number."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from onnxq.graph import Graph, Node
from onnxq.passes.edits import scalar


class Clamp(NamedTuple):
    """min(max(source, low), high); `dtype` is the type of the bounds when they are tensors."""

    source: Any
    low: float
    high: float
    dtype: np.dtype[Any] | None


def clamp_of(graph: Graph, node: Node) -> Clamp | None:
    """The clamp that a node computes; None when it computes something else or its bounds are no single numbers."""
    if node.domain or node.op not in ("Relu", "Clip", "Min", "Max"):
        return None
    if node.op == "Relu":
        return Clamp(node.inputs[0], 0.0, math.inf, None)
    if node.op == "Clip":
        return _clip(graph, node)
    if len(node.inputs) != 2:
        return None
    for source, bound in (node.inputs, reversed(node.inputs)):
        number = scalar(graph, bound)
        if number is not None and _keeps_rank(graph, source, bound):
            low, high = (number, math.inf) if node.op == "Max" else (-math.inf, number)
            return Clamp(source, low, high, graph.values(bound).dtype)
    return None


def _clip(graph: Graph, node: Node) -> Clamp | None:
    if graph.opset < 11:
        return Clamp(node.inputs[0], node.attrs.get("min", -math.inf), node.attrs.get("max", math.inf), None)
    bounds = [-math.inf, math.inf]
    dtype = None
    for port, tensor in enumerate(node.inputs[1:3]):
        if tensor.name:
            number = scalar(graph, tensor)
            if number is None:
                return None
            bounds[port] = number
            dtype = graph.values(tensor).dtype
    return Clamp(node.inputs[0], bounds[0], bounds[1], dtype)


def _keeps_rank(graph: Graph, source: Any, bound: Any) -> bool:
    """Whether broadcasting with the bound leaves the shape of the source alone."""
    bound_rank, shape = graph.values(bound).ndim, graph.shape(source)
    return bound_rank == 0 or (shape is not None and bound_rank <= len(shape))
