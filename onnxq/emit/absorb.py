"""Drop a Relu or Clip whose effect the quantizer behind it has anyway.

Quantizing is monotone and saturates, so Q(clip(x)) == Q(x) for every x exactly when Q(low) is the lowest and Q(high)
the highest code. onnxruntime needs that to see DequantizeLinear -> Conv -> QuantizeLinear without anything in between.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from onnxq.graph import Graph, Node
from onnxq.numerics import quantize
from onnxq.types import QParams


class Absorbed(NamedTuple):
    """The node that nobody needs any more, and the tensor that the quantizer reads in its place."""

    node: Node
    source: Any


def absorb_activation(graph: Graph, tensor: str, qparams: QParams) -> Absorbed | None:
    """Bypass the Relu / Clip that makes `tensor` if nothing changes by it: its readers read its input then.

    The bypassed node stays in the graph for the caller to remove, all of them at once.
    """
    node = graph.producer(tensor)
    if node is None or not can_be_absorbed(node):
        return None
    source = node.inputs[0]
    producer = graph.producer(source)
    if producer is None or graph.is_output(source) or len(graph.consumers(source)) != 1:
        return None
    if not saturates_as(graph, node, qparams):
        return None
    graph.redirect(tensor, source)
    graph.origins.node_became(node.name, producer.name)
    return Absorbed(node, source)


def can_be_absorbed(node: Node) -> bool:
    """Whether a node is one that a quantizer behind it may have the effect of."""
    return node.op in ("Relu", "Clip")


def saturates_as(graph: Graph, node: Node, qparams: QParams) -> bool:
    """Whether a quantizer behind a Relu or Clip saturates at the same values."""
    if qparams.scale.ndim or not qparams.spec.evenly_spaced:
        return False
    bounds = _bounds(graph, node)
    return bounds is not None and _saturates_at(bounds, qparams)


def _bounds(graph: Graph, node: Node) -> tuple[float, float] | None:
    if node.op == "Relu":
        return 0.0, np.inf
    if "min" in node.attrs or "max" in node.attrs:
        return float(node.attrs.get("min", -np.inf)), float(node.attrs.get("max", np.inf))
    found = []
    for port, default in ((1, -np.inf), (2, np.inf)):
        given = port < len(node.inputs) and bool(node.inputs[port].name)
        if given and not graph.is_constant(node.inputs[port]):
            return None
        found.append(float(graph.values(node.inputs[port]).reshape(-1)[0]) if given else default)
    return found[0], found[1]


def _saturates_at(bounds: tuple[float, float], qparams: QParams) -> bool:
    """Whether the bounds fall on the lowest and the highest code; infinities do, and 0 falls on the zero point."""
    low, high = (_code(bound, qparams) for bound in bounds)
    return low == qparams.spec.qmin and high == qparams.spec.qmax


def _code(bound: float, qparams: QParams) -> int:
    if bound == 0:
        return int(qparams.zero_point)
    if np.isinf(bound):
        return qparams.spec.qmax if bound > 0 else qparams.spec.qmin
    return int(quantize(np.float32(bound).reshape(1), qparams)[0])
