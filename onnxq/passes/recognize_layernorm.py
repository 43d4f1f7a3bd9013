"""LayerNorm and RMSNorm written in small operators are treated as one operation.

LayerNorm    (x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon) * gamma + beta        (Ba et al., 2016)
RMSNorm      x / sqrt(mean(x^2) + epsilon) * gamma                                       (Zhang and Sennrich, 2019)
"""

from __future__ import annotations

from typing import Any

from onnxq.graph import Graph, Node
from onnxq.passes.base import PASSES, PassResult
from onnxq.passes.edits import scalar
from onnxq.passes.norm_parts import NormParts, find_core
from onnxq.passes.rewriter import is_op
from onnxq.passes.units import add_unit, find_leak

_MAX_NODES = 24


@PASSES.register("recognize_layernorm")
def recognize_layernorm(graph: Graph) -> PassResult:
    """Group the nodes of every decomposed LayerNorm and RMSNorm as a unit, over whatever axes; the nodes stay.

    Known forms: Pow or Mul for the square, Div or Reciprocal and Mul or a negative power, one or two subtractions, axes
    as attribute or input, Casts in between, with and without gamma and beta, and x * s + (beta - mean * s).
    """
    result = PassResult()
    for node in graph.nodes("ReduceMean"):
        parts = None if node.domain else find_core(graph, node)
        if parts is None:
            continue
        last = parts.last if parts.complete else _affine_end(graph, parts)
        nodes = _unit_nodes(graph, last, parts)
        if nodes is not None:
            add_unit(graph, result, "LayerNorm" if parts.centered else "RMSNorm", nodes)
    return result


def _affine_end(graph: Graph, parts: NormParts) -> Node:
    """The last node after an optional Mul with gamma and, for LayerNorm, an optional Add of beta."""
    scaled = _only_reader(graph, parts.last)
    if is_op(scaled, "Cast"):
        scaled = _only_reader(graph, scaled)
    if scaled is None or not _takes_parameter(graph, scaled, "Mul"):
        return parts.last
    shifted = _only_reader(graph, scaled) if parts.centered else None
    return scaled if shifted is None or not _takes_parameter(graph, shifted, "Add") else shifted


def _only_reader(graph: Graph, node: Node) -> Node | None:
    made = node.outputs[0]
    readers = list(dict.fromkeys(use.node for use in graph.consumers(made)))
    return readers[0] if len(readers) == 1 and not graph.is_output(made) else None


def _takes_parameter(graph: Graph, node: Node, op: str) -> bool:
    """Whether a node combines its input with a constant that is more than a number."""
    return is_op(node, op) and any(graph.is_constant(t) and scalar(graph, t) is None for t in node.inputs)


def _unit_nodes(graph: Graph, last: Node, parts: NormParts) -> list[Node] | None:
    """All nodes from x to the last one in the order they run, with the Cast of x if nobody else reads that."""
    with_casts = _between(graph, last, parts.uncast_source)
    if with_casts is not None and find_leak(graph, with_casts) is None:
        return with_casts
    return _between(graph, last, parts.source)


def _between(graph: Graph, last: Node, source: Any) -> list[Node] | None:
    ordered: dict[Node, None] = {}
    pending: list[tuple[Node, bool]] = [(last, False)]
    while pending:
        node, inputs_done = pending.pop()
        if node in ordered:
            continue
        if inputs_done:
            ordered[node] = None
            continue
        pending.append((node, True))
        for tensor in node.inputs:
            producer = graph.producer(tensor)
            if producer is not None and tensor is not source and not graph.is_constant(tensor):
                pending.append((producer, False))
        if len(pending) > 4 * _MAX_NODES or len(ordered) > _MAX_NODES:
            return None
    return list(ordered)
