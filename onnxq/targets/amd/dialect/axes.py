"""channel_axis: Keras keeps channels last, ONNX keeps them second, so axes are translated by what they mean.

    kernel of Conv          Keras [spatial ..., in, out]      ONNX [out, in, spatial ...]
    kernel of depthwise     Keras [spatial ..., channels, 1]  ONNX [channels, 1, spatial ...]
    kernel of Dense         Keras [in, out]                   ONNX [in, out], or [out, in] where a Gemm has transB
    activations of rank 4+  Keras [batch, spatial ..., channels]   ONNX [batch, channels, spatial ...]
    other activations       the same in both

-1 of a kernel means its output channels, also in Conv2DTranspose, whose last axis would be its inputs: the strategies
that Vitis AI ships say so.
"""

from __future__ import annotations

from onnxq.errors import ConfigError
from onnxq.graph import Graph, Node
from onnxq.targets.amd.dialect.layers import is_depthwise, weight_shape

_CONVOLUTION_RANK = 3


def kernel_axis(graph: Graph, node: Node, axis: int, where: str) -> int | None:
    """The ONNX axis of a weight that a Keras axis means; None is the usual one, the output channels."""
    if axis == -1:
        return None
    rank = len(weight_shape(graph, node))
    if not rank:
        raise ConfigError(f"{where}: the shape of the weight of '{node.name}' is not known, so channel_axis must be -1")
    if not -rank <= axis < rank:
        raise ConfigError(f"{where}: channel_axis {axis} is no axis of the weight of '{node.name}', which has {rank}")
    position = axis % rank
    if node.op in ("Conv", "ConvTranspose") and rank >= _CONVOLUTION_RANK:
        if position < rank - 2:
            return position + 2
        if is_depthwise(graph, node) or (position == rank - 1) == (node.op == "Conv"):
            return None
        return 1 if node.op == "Conv" else 0
    if node.op in ("Gemm", "MatMul"):
        if position == rank - 1:
            return None
        return rank - 1 if node.attrs.get("transB", 0) else position
    return axis


def activation_axis(rank: int | None, axis: int, where: str) -> int:
    """The ONNX axis of an activation that a Keras axis means; an unknown rank is taken for that of an image."""
    if rank is not None and not -rank <= axis < rank:
        raise ConfigError(f"{where}: channel_axis {axis} is no axis of a tensor with {rank} axes")
    if rank is not None and rank < 4:
        return axis % rank
    position = axis % rank if rank is not None else axis
    if position == 0:
        return 0
    if position in (-1, (rank or 4) - 1):
        return 1
    return position + 1
