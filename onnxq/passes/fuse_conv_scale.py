"""Move a Mul by one constant per channel behind a Conv or ConvTranspose into its weight and bias.

Conv -> Mul(constant of shape [C,1,1], [1,C,1,1] or a single value) becomes Conv with weight and bias multiplied. A Mul
whose constant varies over positions must not be rewritten, nor one behind a Conv whose output somebody else reads.
"""

from __future__ import annotations

from onnxq.graph import Graph, Node
from onnxq.passes.base import PASSES, PassResult
from onnxq.passes.channels import BIAS, WEIGHT, bias_or_zeros, channel_operand, over_outputs
from onnxq.passes.rewriter import Rewriter, cast_back, constant_values, has_input, shown


@PASSES.register("fuse_conv_scale")
def fuse_conv_scale(graph: Graph) -> PassResult:
    """Fuse every Mul by a constant behind a convolution where that is exact."""
    return Rewriter(graph).visit("Mul", _fuse)


def _fuse(rewriter: Rewriter, node: Node) -> None:
    graph = rewriter.graph
    found = channel_operand(graph, node)
    if found is None:
        return
    convolution, factor, dtype = found
    weight = constant_values(graph, convolution, WEIGHT, "weight")
    new_weight = cast_back(weight * over_outputs(convolution, factor, weight.shape), dtype, "weight")
    new_bias = cast_back(bias_or_zeros(graph, convolution, len(factor)) * factor, dtype, "bias")
    remark = rewriter.set_constant(convolution, WEIGHT, new_weight, "weight")
    if has_input(convolution, BIAS):
        remark += rewriter.set_constant(convolution, BIAS, new_bias, "bias")
    rewriter.changed(node, f"moved into the weight of {shown(convolution)}{remark}")
    rewriter.swallow(convolution, node)
