"""Relu6 becomes Relu, for chips that have no upper bound; the one pass here that changes what a model computes."""

from __future__ import annotations

from onnxq.graph import Graph, Node
from onnxq.passes.base import PASSES, PassResult
from onnxq.passes.clamp import clamp_of
from onnxq.passes.edits import node_line

UPPER_BOUND = 6.0


@PASSES.register("relu6_to_relu")
def relu6_to_relu(graph: Graph) -> PassResult:
    """Clip(x, 0, 6) -> Relu(x); run `relu6_as_clip` first, which brings the other forms of it into this one.

    Values above 6 are no longer cut off: the float outputs change where there are any. No backend runs it by itself.
    """
    result = PassResult()
    for node in graph.nodes("Clip"):
        clamp = clamp_of(graph, node)
        if clamp is None or clamp.low != 0.0 or clamp.high != UPPER_BOUND:
            continue
        if clamp.dtype is not None and clamp.dtype.kind in "iub":
            result.declined.append(
                node_line(node, f"it clips {clamp.dtype} values, which not every runtime has Relu for")
            )
            continue
        result.changed.append(node_line(node, "became Relu, values above 6 stay"))
        _become_relu(node)
    return result


def _become_relu(node: Node) -> None:
    node.op, node.attrs, node.attr_types = "Relu", {}, {}
    node.inputs = [node.inputs[0]]
