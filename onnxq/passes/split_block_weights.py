"""Give readers of a shared weight their own one where they sum along different axes of it.

Blocks of values that share a scale lie along the axis that a layer sums over. Readers that agree about it share the
quantized weight: a Gather from a table of embeddings and the Gemm (transB) or the Transpose in front of a MatMul that
multiplies with the same table. A Gemm that reads the weight the other way round gets another initializer.
"""

from __future__ import annotations

from onnxq.graph import Graph, Use
from onnxq.passes.base import PASSES, PassResult
from onnxq.passes.channels import WEIGHT
from onnxq.passes.rewriter import is_op
from onnxq.passes.split_shared_weights import OTHER, Purpose, split_by_purpose


@PASSES.register("split_block_weights")
def split_block_weights(graph: Graph) -> PassResult:
    """Copy every shared constant once for each further axis that readers sum over; what only moves it reads along."""
    return split_by_purpose(graph, _purpose)


def _purpose(use: Use, rank: int) -> Purpose:
    node, port = use
    if port == WEIGHT and is_op(node, "MatMul"):
        return "weight", str(max(rank - 2, 0))
    if port == WEIGHT and is_op(node, "Gemm"):
        return "weight", "1" if node.attrs.get("transB", 0) else "0"
    if (port == WEIGHT and is_op(node, "Conv")) or (port == 0 and is_op(node, "Gather", "Transpose")):
        return "weight", "1"
    return OTHER
