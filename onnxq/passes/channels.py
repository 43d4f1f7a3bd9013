"""Where the channels of a linear layer lie in its weight, and how a per-channel vector meets them.

    Conv             [out, in / group, k...]
    ConvTranspose    [in, out / group, k...]
    Gemm             [in, out], with transB [out, in]
    MatMul           [in, out]

Channels of a grouped layer are numbered group after group, so a vector over all of them is spread over the groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from onnxq.graph import Graph, Node
from onnxq.passes.rewriter import Declined, constant_values, has_input, is_op, known_shape, require_only_reader, shown

LINEAR = ("Conv", "ConvTranspose", "Gemm", "MatMul")
CONVOLUTIONS = ("Conv", "ConvTranspose")
WEIGHT, BIAS = 1, 2


def group_of(node: Node) -> int:
    return int(node.attrs.get("group", 1))


def output_axis(node: Node) -> int:
    """The axis of the weight along which output channels lie (those of one group in a ConvTranspose)."""
    if is_op(node, "Conv"):
        return 0
    if is_op(node, "Gemm"):
        return 0 if node.attrs.get("transB", 0) else 1
    return 1 if is_op(node, "ConvTranspose") else -1


def output_channels(node: Node, shape: Sequence[Any]) -> int:
    """Number of output channels of a layer whose weight has this shape; declines one that the layer cannot read."""
    return _channels(node, shape, output_axis(node), grouped=is_op(node, "ConvTranspose"))


def input_channels(node: Node, shape: Sequence[Any]) -> int:
    """Number of input channels of a layer whose weight has this shape; declines one that the layer cannot read."""
    return _channels(node, shape, _input_axis(node), grouped=is_op(node, "Conv"))


def _channels(node: Node, shape: Sequence[Any], axis: int, *, grouped: bool) -> int:
    """The length of an axis, times the groups where it holds the channels of one."""
    if len(shape) < (1 if is_op(node, "MatMul") else 2):
        raise Declined(f"the weight of {shown(node)} has shape {list(shape)}, without an axis for the channels")
    groups = group_of(node) if is_op(node, *CONVOLUTIONS) else 1
    if groups < 1 or shape[0] % groups:
        raise Declined(f"the weight of {shown(node)} of shape {list(shape)} does not have {groups} equal groups")
    return int(shape[axis]) * (groups if grouped else 1)


def over_outputs(node: Node, vector: np.ndarray, shape: Sequence[Any]) -> np.ndarray:
    """A vector over the output channels, shaped so that it multiplies a weight of this shape."""
    return _spread(vector, shape, output_axis(node) % len(shape), group_of(node))


def over_inputs(node: Node, vector: np.ndarray, shape: Sequence[Any]) -> np.ndarray:
    """A vector over the input channels, shaped so that it multiplies a weight of this shape."""
    return _spread(vector, shape, _input_axis(node), group_of(node))


def response(node: Node, vector: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """What each output channel of an unpadded layer makes of an input that is `vector` at every position."""
    axis = output_axis(node) % weight.ndim
    others = tuple(position for position in range(weight.ndim) if position != axis)
    return np.asarray((weight * over_inputs(node, vector, weight.shape)).sum(axis=others))


def _input_axis(node: Node) -> int:
    if is_op(node, "Gemm"):
        return 1 - output_axis(node)
    return 1 if is_op(node, "Conv") else 0


def _spread(vector: np.ndarray, shape: Sequence[Any], axis: int, groups: int) -> np.ndarray:
    if len(vector) == shape[axis]:
        return vector.reshape([-1 if position == axis else 1 for position in range(len(shape))])
    # A grouped axis 1: row block g of axis 0 belongs to group g and meets that group's part of the vector.
    rows = np.repeat(vector.reshape(groups, -1), shape[0] // groups, axis=0)
    return rows.reshape(rows.shape + (1,) * (len(shape) - 2))


def bias_or_zeros(graph: Graph, node: Node, channels: int) -> np.ndarray:
    """The bias of a convolution in float64; zeros when it has none."""
    if not has_input(node, BIAS):
        return np.zeros(channels)
    bias = constant_values(graph, node, BIAS, "bias")
    if bias.shape != (channels,):
        name = node.inputs[BIAS].name
        raise Declined(f"bias '{name}' of {shown(node)} has shape {list(bias.shape)}, not [{channels}]")
    return bias


class ChannelOperand(NamedTuple):
    """A convolution, and the constant that is combined with its output: float64, one value per output channel."""

    convolution: Node
    values: np.ndarray
    dtype: np.dtype[Any]


def channel_operand(graph: Graph, node: Node) -> ChannelOperand | None:
    """What an element-wise node reads, if that is a convolution and a constant; declines a pair that does not fit."""
    if len(node.inputs) != 2:
        return None
    for port in (0, 1):
        convolution = graph.producer(node.inputs[port])
        if convolution is None or not is_op(convolution, *CONVOLUTIONS) or not graph.is_constant(node.inputs[1 - port]):
            continue
        require_only_reader(graph, convolution, node)
        shape = known_shape(graph, convolution.inputs[WEIGHT])
        if shape is None or not all(isinstance(dim, int) for dim in shape):
            raise Declined(f"the weight shape of {shown(convolution)} is not known")
        values = graph.values(node.inputs[1 - port])
        spread = _one_per_channel(values, len(shape), output_channels(convolution, shape))
        return ChannelOperand(convolution, spread.astype(np.float64), values.dtype)
    return None


def _one_per_channel(values: np.ndarray, rank: int, channels: int) -> np.ndarray:
    """Values that broadcast against [batch, channels, ...] as one number per channel; declines all others."""
    aligned = (1,) * (rank - values.ndim) + values.shape
    alone = all(dim == 1 for axis, dim in enumerate(aligned) if axis != 1)
    if len(aligned) != rank or not alone or aligned[1] not in (1, channels):
        raise Declined(f"its constant of shape {list(values.shape)} is not one value for each of {channels} channels")
    return np.broadcast_to(values.reshape(-1), (channels,))
