"""Turn BatchNormalization that could not be folded into a depthwise 1x1 Conv, for targets without a kernel for it.

BatchNormalization on [N, C, d...] becomes Conv with weight [C, 1, 1...], group C and bias [C]. On a tensor of rank 2
it must stay: a Conv needs at least one spatial axis.
"""

from __future__ import annotations

import numpy as np

from onnxq.graph import Graph, Node
from onnxq.passes.base import PASSES, PassResult
from onnxq.passes.batchnorm import read_batchnorm
from onnxq.passes.channels import BIAS, WEIGHT
from onnxq.passes.rewriter import Declined, Rewriter, cast_back, element_type

_BATCHNORM_INPUTS = 5


@PASSES.register("batchnorm_to_conv")
def batchnorm_to_conv(graph: Graph) -> PassResult:
    """Rewrite every BatchNormalization of known rank 3 or more; run `fold_batchnorm` first."""
    return Rewriter(graph).visit("BatchNormalization", _rewrite)


def _rewrite(rewriter: Rewriter, node: Node) -> None:
    graph = rewriter.graph
    affine = read_batchnorm(graph, node)
    shape = graph.shape(node.inputs[0]) or graph.shape(node.outputs[0])
    if not shape:
        raise Declined(f"the rank of '{node.inputs[0].name}' is not known")
    spatial = len(shape) - 2
    if spatial < 1:
        raise Declined(f"a Conv needs a spatial axis, and '{node.inputs[0].name}' has only {len(shape)} axes")
    dtype = graph.dtype(node.inputs[0]) or element_type(graph, node.inputs[1])
    if dtype == np.float64:
        raise Declined("onnxruntime has no Conv for float64")
    weight = cast_back(affine.scale.reshape(-1, 1, *[1] * spatial), dtype, "weight")
    bias = cast_back(affine.shift, dtype, "bias")

    rewriter.changed(node, f"became a depthwise Conv of {affine.channels} channels")
    for port in reversed(range(1, _BATCHNORM_INPUTS)):
        rewriter.drop_input(node, port)
    while len(node.outputs) > 1:
        node.outputs.pop()
    node.op = "Conv"
    node.attrs = {"kernel_shape": [1] * spatial, "group": affine.channels}
    rewriter.set_constant(node, WEIGHT, weight, "weight")
    rewriter.set_constant(node, BIAS, bias, "bias")
