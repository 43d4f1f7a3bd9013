"""Move an Add of one constant per channel behind a Conv or ConvTranspose into its bias.

Conv -> Add(constant of shape [C,1,1], [1,C,1,1] or a single value) becomes Conv with bias. An Add whose constant
varies over positions must not be rewritten, nor one behind a Conv whose output somebody else reads.
"""

from __future__ import annotations

from onnxq.graph import Graph, Node
from onnxq.passes.base import PASSES, PassResult
from onnxq.passes.channels import BIAS, bias_or_zeros, channel_operand
from onnxq.passes.rewriter import Rewriter, cast_back, shown


@PASSES.register("fuse_conv_bias")
def fuse_conv_bias(graph: Graph) -> PassResult:
    """Fuse every Add of a constant behind a convolution where that is exact."""
    return Rewriter(graph).visit("Add", _fuse)


def _fuse(rewriter: Rewriter, node: Node) -> None:
    graph = rewriter.graph
    found = channel_operand(graph, node)
    if found is None:
        return
    convolution, added, dtype = found
    bias = cast_back(bias_or_zeros(graph, convolution, len(added)) + added, dtype, "bias")
    remark = rewriter.set_constant(convolution, BIAS, bias, "bias")
    rewriter.changed(node, f"moved into the bias of {shown(convolution)}{remark}")
    rewriter.swallow(convolution, node)
