"""Mark MatMul and the Add of its bias as one unit, so that nothing is quantized between them.

MatMul(constant [K, N]) -> Add(constant [N], [1, N] or [1, 1, N]) becomes a unit "MatMulAdd"; the nodes stay. A MatMul
whose product is read elsewhere must not be marked: that reader needs the value in between.
"""

from __future__ import annotations

from onnxq.graph import Graph, Node
from onnxq.passes.base import PASSES, PassResult
from onnxq.passes.channels import WEIGHT
from onnxq.passes.rewriter import Declined, Rewriter, is_op, known_shape, require_only_reader, shown

UNIT = "MatMulAdd"


@PASSES.register("fuse_matmul_add")
def fuse_matmul_add(graph: Graph) -> PassResult:
    """Mark every MatMul with a constant matrix and the Add of a constant vector behind it."""
    return Rewriter(graph).visit("Add", _mark)


def _mark(rewriter: Rewriter, node: Node) -> None:
    graph = rewriter.graph
    for port in (0, 1):
        matmul = graph.producer(node.inputs[port])
        if matmul is not None and is_op(matmul, "MatMul") and graph.is_constant(node.inputs[1 - port]):
            _mark_pair(rewriter, matmul, node, port)
            return


def _mark_pair(rewriter: Rewriter, matmul: Node, node: Node, port: int) -> None:
    graph = rewriter.graph
    weight, added = known_shape(graph, matmul.inputs[WEIGHT]), known_shape(graph, node.inputs[1 - port])
    if not graph.is_constant(matmul.inputs[WEIGHT]) or weight is None or len(weight) != 2:
        raise Declined(f"the weight of {shown(matmul)} is not a constant matrix")
    if added is None or not 1 <= len(added) <= 3 or added[-1] != weight[1] or any(dim != 1 for dim in added[:-1]):
        raise Declined(f"its constant of shape {list(added or ())} is not one value for each of {weight[1]} channels")
    require_only_reader(graph, matmul, node)
    unit = graph.units.of(node.name) or graph.units.of(matmul.name)
    if unit is not None:
        if unit.nodes != (matmul.name, node.name):
            raise Declined(f"it or {shown(matmul)} belongs to a {unit.kind} already")
        return
    graph.units.add(UNIT, (matmul.name, node.name))
    rewriter.changed(node, f"is one unit with {shown(matmul)}")
