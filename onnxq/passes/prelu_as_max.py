"""PRelu written with operators that run fast: LeakyRelu, Max(x, slope * x), or the sum of its two halves.

onnxruntime computes PRelu value by value with a branch, some ten times slower than a product and a maximum, and has no
integer kernel of it. Every form here gives the same numbers: the product is the one that PRelu computes, and what it is
compared with or added to is x or 0. Only the sign of a zero may be another.

    one slope for all       LeakyRelu(x), which has an integer kernel
    slopes up to 1, not 0   Max(x, slope * x)
    slopes from 1 on        Min(x, slope * x)
    all others              Max(x, 0) + slope * Min(x, 0)

Of an infinite x the product with a slope of 0 is no number, which PRelu does not look at.
"""

from __future__ import annotations

import numpy as np

from onnxq.graph import Graph, Node
from onnxq.passes.base import PASSES, PassResult
from onnxq.passes.rewriter import Declined, Rewriter, element_type

SLOPE = 1
BROADCASTS = 8
"""The opset from which Max and Min broadcast; PRelu does from 7 on."""


@PASSES.register("prelu_as_max")
def prelu_as_max(graph: Graph) -> PassResult:
    """Every PRelu of float32 with constant slopes; the node that makes its result keeps its name."""
    if graph.nodes("PRelu"):
        graph.raise_opset(BROADCASTS)
    return Rewriter(graph).visit("PRelu", _rewrite)


def _rewrite(rewriter: Rewriter, node: Node) -> None:
    graph = rewriter.graph
    if not graph.is_constant(node.inputs[SLOPE]):
        raise Declined(f"its slopes '{node.inputs[SLOPE].name}' are computed")
    slope = graph.values(node.inputs[SLOPE])
    if element_type(graph, node.inputs[SLOPE]) != np.float32:
        raise Declined(f"it computes in {slope.dtype}")
    if slope.size == 0 or not np.all(np.isfinite(slope)):
        raise Declined("its slopes are not finite numbers")
    if np.all(slope == slope.flat[0]) and slope.ndim <= len(graph.shape(node.inputs[0]) or ()):
        _become_leaky(rewriter, node, float(slope.flat[0]))
    elif np.all((slope <= 1.0) & (slope != 0.0)):
        _become_extreme(rewriter, node, "Max")
    elif np.all(slope >= 1.0):
        _become_extreme(rewriter, node, "Min")
    else:
        _become_sum(rewriter, node)


def _become_leaky(rewriter: Rewriter, node: Node, slope: float) -> None:
    rewriter.changed(node, f"has one slope for all: became LeakyRelu with {slope:g}")
    rewriter.drop_input(node, SLOPE)
    node.op, node.attrs, node.attr_types = "LeakyRelu", {"alpha": slope}, {}


def _become_extreme(rewriter: Rewriter, node: Node, op: str) -> None:
    rewriter.changed(node, f"became {op}(x, slope * x)")
    x, slope = node.inputs
    node.inputs = [x, _computed(rewriter.graph, node, "Mul", "slope", [x, slope])]
    node.op = op


def _become_sum(rewriter: Rewriter, node: Node) -> None:
    rewriter.changed(node, "has slopes on both sides of 1, or of 0: became Max(x, 0) + slope * Min(x, 0)")
    graph, (x, slope) = rewriter.graph, node.inputs
    zero = graph.add_constant(f"{node.name}_zero", np.zeros((), np.float32), scope=graph.scope_of(node))
    below = _computed(graph, node, "Min", "below", [x, zero])
    scaled = _computed(graph, node, "Mul", "slope", [below, slope])
    node.inputs = [_computed(graph, node, "Max", "above", [x, zero]), scaled]
    node.op = "Add"


def _computed(graph: Graph, node: Node, op: str, part: str, inputs: list[object]) -> object:
    """The result of a new node beside a PRelu, which has the shape of its own result."""
    made = graph.add_node(op, inputs, name=f"{node.name}_{part}", scope=graph.scope_of(node)).outputs[0]
    made.dtype, made.shape = node.outputs[0].dtype, node.outputs[0].shape
    return made
