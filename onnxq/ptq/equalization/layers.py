"""Layers whose constants take scales up: linear layers, normalisations, products and sums with a constant.

    Conv             [out, in / group, k...]      Gemm      [in, out], with transB [out, in]
    ConvTranspose    [in, out / group, k...]      MatMul    [in, out]

Channels of a grouped layer are numbered group after group.
"""

from __future__ import annotations

import numpy as np

from onnxq.graph import Node
from onnxq.ptq.equalization.flow import Flow, Stop, has_input, rule
from onnxq.ptq.equalization.layouts import of_constant, on_axis, vector_along
from onnxq.ptq.equalization.variables import Layout

DATA, WEIGHT, BIAS = 0, 1, 2


def grouped_inputs(op: str, group: int, vector: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Entries of the input channels where they meet the weight of a Conv or ConvTranspose."""
    tail = (1,) * (len(shape) - 2)
    if op == "ConvTranspose":
        return vector.reshape(shape[0], 1, *tail)
    return _by_group(vector, group, shape[0]).reshape(-1, shape[1], *tail)


def grouped_outputs(op: str, group: int, vector: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Entries of the output channels where they meet the weight of a Conv or ConvTranspose."""
    tail = (1,) * (len(shape) - 2)
    if op == "Conv":
        return vector.reshape(shape[0], 1, *tail)
    return _by_group(vector, group, shape[0]).reshape(-1, shape[1], *tail)


def _by_group(vector: np.ndarray, group: int, rows: int) -> np.ndarray:
    """Rows of the weight belong to groups, one after the other, and meet the part of the vector of their group."""
    if group == 1:
        return vector.reshape(1, -1)
    return np.repeat(vector.reshape(group, -1), rows // group, axis=0)


@rule("Conv", "ConvTranspose")
def _convolution(flow: Flow, node: Node) -> Layout:
    weight = flow.own_values(node, WEIGHT)
    rank, group = weight.ndim, int(node.attrs.get("group", 1))
    sizes = weight.shape[0], weight.shape[1] * group
    ins, outs = (sizes[1], sizes[0]) if node.op == "Conv" else sizes
    read = vector_along(flow.layout(node.inputs[DATA]), 1, ins, rank)
    if read is None:
        raise Stop("reads a tensor whose scales change along other axes than the channels")
    if has_input(node, BIAS):
        flow.own_values(node, BIAS)
    made = flow.make(node, outs)
    up = grouped_inputs(node.op, group, read, weight.shape)
    flow.edit(node, WEIGHT, up=up, down=grouped_outputs(node.op, group, made, weight.shape))
    if has_input(node, BIAS):
        flow.edit(node, BIAS, down=made)
    return on_axis(made, 1, rank)


@rule("Gemm")
def _gemm(flow: Flow, node: Node) -> Layout:
    weight = flow.own_values(node, WEIGHT)
    if node.attrs.get("transA", 0):
        raise Stop("reads its input transposed")
    by_rows = bool(node.attrs.get("transB", 0))
    outs, ins = weight.shape if by_rows else weight.shape[::-1]
    read = vector_along(flow.layout(node.inputs[DATA]), 1, ins, 2)
    if read is None:
        raise Stop("reads a tensor whose scales change along other axes than the channels")
    if has_input(node, BIAS):
        bias = flow.own_values(node, BIAS)
        if bias.ndim == 0 or bias.shape[-1] != outs:
            raise Stop(f"has a bias of shape {list(bias.shape)}, which is not one value for each of {outs} channels")
    made = flow.make(node, outs)
    axis = 1 if by_rows else 0
    flow.edit(node, WEIGHT, up=on_axis(read, axis, 2), down=on_axis(made, 1 - axis, 2))
    if has_input(node, BIAS):
        flow.edit(node, BIAS, down=made)
    return on_axis(made, 1, 2)


@rule("MatMul")
def _matmul(flow: Flow, node: Node) -> Layout:
    if not flow.graph.is_constant(node.inputs[WEIGHT]):
        return _product_of_two(flow, node)
    weight = flow.own_values(node, WEIGHT)
    if weight.ndim != 2:
        raise Stop(f"has a weight of {weight.ndim} axes, not a matrix")
    rank = len(flow.shape(node.inputs[DATA]))
    read = vector_along(flow.layout(node.inputs[DATA]), -1, weight.shape[0], rank)
    if read is None or rank < 2:
        raise Stop("reads a tensor whose scales change along other axes than the last")
    made = flow.make(node, weight.shape[1])
    flow.edit(node, WEIGHT, up=on_axis(read, 0, 2), down=on_axis(made, 1, 2))
    return on_axis(made, -1, rank)


def _product_of_two(flow: Flow, node: Node) -> Layout:
    """Attention: what weighs the values is held, the scales of the values pass through to the columns."""
    layout = flow.layout(node.inputs[1])
    flow.hold(node.inputs[0], f"'{node.name}' (MatMul) multiplies it with another activation")
    if layout.ndim == 0:
        return layout
    if layout.ndim < 2 or layout.shape[-2] != 1:
        raise Stop("sums over channels of two activations")
    rank = len(flow.shape(node.inputs[0]))
    if rank < 2:
        raise Stop("multiplies a vector, so that its result has an axis less")
    return layout.reshape((1,) * max(0, rank - layout.ndim) + layout.shape)


@rule("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization")
def _layer_norm(flow: Flow, node: Node) -> Layout:
    """gamma and beta take up the scales of the output; the input is normalised, so that its scales would be lost."""
    rank = len(flow.shape(node.inputs[DATA]))
    axis = int(node.attrs.get("axis", -1)) % rank
    gamma = flow.own_values(node, WEIGHT)
    if gamma.ndim != rank - axis:
        raise Stop(f"has a gamma of shape {list(gamma.shape)}, which is not one value for each normalised position")
    if has_input(node, BIAS) and flow.own_values(node, BIAS).shape != gamma.shape:
        raise Stop("has a beta of another shape than gamma")
    flow.hold(node.inputs[DATA], f"'{node.name}' ({node.op}) normalises it over its channels")
    made = flow.make(node, *gamma.shape)
    for port in (WEIGHT, BIAS) if has_input(node, BIAS) else (WEIGHT,):
        flow.edit(node, port, down=made)
    return made.reshape((1,) * axis + gamma.shape)


@rule("BatchNormalization", "InstanceNormalization")
def _channel_norm(flow: Flow, node: Node) -> Layout:
    rank = len(flow.shape(node.inputs[DATA]))
    gamma, _ = flow.own_values(node, WEIGHT), flow.own_values(node, BIAS)
    flow.hold(node.inputs[DATA], f"'{node.name}' ({node.op}) normalises it")
    made = flow.make(node, *gamma.shape)
    flow.edit(node, WEIGHT, down=made)
    flow.edit(node, BIAS, down=made)
    return on_axis(made, 1, rank)


@rule("Mul", "Div")
def _multiply(flow: Flow, node: Node) -> Layout:
    """x * c takes scales up in c where c has channels, x * number carries them, x * y carries those of the larger."""
    constants = [port for port in (0, 1) if flow.graph.is_constant(node.inputs[port])]
    if node.op == "Div" and 0 in constants:
        raise Stop("divides by an activation")
    if not constants:
        return _gate(flow, node)
    port = constants[0]
    data, constant = node.inputs[1 - port], flow.graph.values(node.inputs[port])
    layout = flow.layout(data)
    rank = len(flow.shape(data))
    if constant.ndim > rank:
        raise Stop("spreads its input over more axes")
    if constant.size == 1:
        return layout
    read = of_constant(layout, constant.shape)
    try:
        flow.own_values(node, port)
    except Stop:
        read = None
    if read is None or _spreads(flow, data, constant.shape):
        return layout  # a product with numbers that stay is as good as any linear operator
    made = flow.make(node, *constant.shape)
    if node.op == "Mul":
        flow.edit(node, port, up=read, down=made)
    else:
        flow.edit(node, port, up=made, down=read)
    return made.reshape((1,) * (rank - constant.ndim) + constant.shape)


def _spreads(flow: Flow, data: object, shape: tuple[int, ...]) -> bool:
    """Whether a constant makes its operand longer, so that one channel would meet several numbers."""
    known = flow.shape(data)
    return any(held != 1 and length == 1 for length, held in zip(known[len(known) - len(shape) :], shape, strict=True))


def _gate(flow: Flow, node: Node) -> Layout:
    """x * gate(...): the scales of x pass through, the gate stays as it is."""
    first, second = node.inputs
    shapes = flow.shape(first), flow.shape(second)
    swap = len(shapes[0]) < len(shapes[1]) or flow.variables.is_fixed(flow.layout(first))
    carrier, gate = (second, first) if swap and node.op == "Mul" else (first, second)
    if len(flow.shape(carrier)) < len(flow.shape(gate)):
        raise Stop("spreads its input over more axes")
    flow.hold(gate, f"'{node.name}' ({node.op}) multiplies it with another activation")
    return flow.layout(carrier)


@rule("Add", "Sub")
def _add(flow: Flow, node: Node) -> Layout:
    """A constant with channels takes up the scales of what it is added to; two activations must have the same."""
    constants = [port for port in (0, 1) if flow.graph.is_constant(node.inputs[port])]
    if not constants:
        return _united(flow, node)
    port = constants[0]
    layout = flow.layout(node.inputs[1 - port])
    if flow.variables.is_fixed(layout):
        return layout
    constant = flow.own_values(node, port)
    read = of_constant(layout, constant.shape)
    if read is None:
        raise Stop(f"adds a constant of shape {list(constant.shape)}, which has no value of its own for each channel")
    flow.edit(node, port, down=read)
    return layout


@rule("Max", "Min")
def _extreme(flow: Flow, node: Node) -> Layout:
    """The larger or the smaller of two activations with the same scales has these scales too."""
    if len(node.inputs) != 2 or any(flow.graph.is_constant(tensor) for tensor in node.inputs):
        raise Stop("compares with numbers, or more than two tensors")
    return _united(flow, node)


def _united(flow: Flow, node: Node) -> Layout:
    one, other = (flow.layout(tensor) for tensor in node.inputs)
    if one.ndim and other.ndim and len({one.ndim, other.ndim}) > 1:
        raise Stop("joins tensors of different rank")
    flow.variables.unite(one, other)
    if one.ndim != other.ndim:  # one number for all, which holds for the result too, whatever its rank
        return one if one.ndim == 0 else other
    return one if one.size >= other.size else other
