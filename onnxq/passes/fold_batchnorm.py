"""Fold BatchNormalization into the weight and bias of the linear layer before it, or else of the one after it.

    Conv | ConvTranspose | Gemm | MatMul | MatMul -> Add, then this    W' = W * scale, b' = b * scale + shift
    this, then Conv | Gemm | MatMul                                    W' = W * scale, b' = b + W(shift)

scale and shift run over the output channels in the first line and over the input channels in the second. A padded
Conv after a BatchNormalization must not be rewritten unless shift is 0: its padding is zero, not shift. A MatMul whose
result has more than two dimensions must not either: its last axis is not the one that BatchNormalization normalizes.
"""

from __future__ import annotations

import numpy as np

from onnxq.graph import Graph, Node
from onnxq.passes.base import PASSES, PassResult
from onnxq.passes.batchnorm import Affine, read_batchnorm
from onnxq.passes.channels import (
    BIAS,
    LINEAR,
    WEIGHT,
    bias_or_zeros,
    input_channels,
    output_channels,
    over_inputs,
    over_outputs,
    response,
)
from onnxq.passes.rewriter import (
    Declined,
    Rewriter,
    cast_back,
    constant_values,
    element_type,
    has_input,
    is_op,
    require_only_reader,
    shown,
)


@PASSES.register("fold_batchnorm")
def fold_batchnorm(graph: Graph) -> PassResult:
    """Fold every BatchNormalization that has a linear layer before or after it; declines the others."""
    return Rewriter(graph).visit("BatchNormalization", _fold)


def _fold(rewriter: Rewriter, node: Node) -> None:
    affine = read_batchnorm(rewriter.graph, node)
    reasons = []
    for attempt in (_into_layer_before, _into_layer_after):
        try:
            attempt(rewriter, node, affine)
        except Declined as reason:
            reasons.append(str(reason))
        else:
            return
    raise Declined("; ".join(reason for reason in reasons if reason) or f"no {', '.join(LINEAR)} before or after it")


def _into_layer_before(rewriter: Rewriter, node: Node, affine: Affine) -> None:
    graph = rewriter.graph
    before = graph.producer(node.inputs[0])
    if before is None or not is_op(before, *LINEAR, "Add"):
        raise Declined("")
    addition = before if is_op(before, "Add") else None
    layer = before if addition is None else _matmul_of(graph, before)
    require_only_reader(graph, before, node)
    if addition is not None:
        require_only_reader(graph, layer, addition)

    weight = constant_values(graph, layer, WEIGHT, "weight")
    _require_matrix_product(graph, layer, weight, node)
    if output_channels(layer, weight.shape) != affine.channels:
        raise Declined(f"{shown(layer)} does not have {affine.channels} output channels")
    dtype = element_type(graph, layer.inputs[WEIGHT])
    new_weight = cast_back(weight * over_outputs(layer, affine.scale, weight.shape), dtype, "weight")

    if not is_op(layer, "MatMul"):
        new_bias = cast_back(_bias(graph, layer, affine.channels) * affine.scale + affine.shift, dtype, "bias")
        remark = rewriter.set_constant(layer, WEIGHT, new_weight, "weight")
        remark += rewriter.set_constant(layer, BIAS, new_bias, "bias")
        layer.attrs.pop("beta", None)  # it is part of the new bias
    elif addition is not None:
        port = _constant_port(graph, addition)
        added = constant_values(graph, addition, port, "operand")
        new_added = cast_back(added * affine.scale + affine.shift, dtype, "bias")
        remark = rewriter.set_constant(layer, WEIGHT, new_weight, "weight")
        remark += rewriter.set_constant(addition, port, new_added, "bias")
    else:
        new_shift = cast_back(affine.shift, dtype, "bias")
        remark = rewriter.set_constant(layer, WEIGHT, new_weight, "weight")
        if np.any(new_shift):
            before = _add_behind(rewriter, layer, new_shift)
    rewriter.changed(node, f"folded into {shown(layer)} before it{remark}")
    rewriter.swallow(before, node)


def _into_layer_after(rewriter: Rewriter, node: Node, affine: Affine) -> None:
    graph = rewriter.graph
    readers = [use for use in graph.consumers(node.outputs[0]) if is_op(use.node, *LINEAR)]
    if not readers:
        raise Declined("")
    layer, port = readers[0]
    require_only_reader(graph, node, layer)
    if port != 0 or len(readers) != 1:
        raise Declined(f"{shown(layer)} after it reads it as a weight")
    weight = constant_values(graph, layer, WEIGHT, "weight")
    _require_matrix_product(graph, layer, weight, node)
    _require_constant_response(layer, affine)
    if input_channels(layer, weight.shape) != affine.channels:
        raise Declined(f"{shown(layer)} does not have {affine.channels} input channels")
    dtype = element_type(graph, layer.inputs[WEIGHT])
    new_weight = cast_back(weight * over_inputs(layer, affine.scale, weight.shape), dtype, "weight")
    moved = response(layer, affine.shift, weight)
    if is_op(layer, "MatMul"):
        holder, bias_port, bias = _addition_behind(graph, layer, moved)
    else:
        alpha = float(layer.attrs.get("alpha", 1.0)) if is_op(layer, "Gemm") else 1.0
        holder, bias_port, bias = layer, BIAS, _bias(graph, layer, len(moved)) + alpha * moved
    new_bias = cast_back(bias, dtype, "bias")

    layer.inputs[0] = node.inputs[0]
    remark = rewriter.set_constant(layer, WEIGHT, new_weight, "weight")
    if holder is not None and (has_input(holder, bias_port) or np.any(new_bias)):
        remark += rewriter.set_constant(holder, bias_port, new_bias, "bias")
    elif holder is None and np.any(new_bias):
        _add_behind(rewriter, layer, new_bias)
    layer.attrs.pop("beta", None)  # it is part of the new bias
    rewriter.changed(node, f"folded into {shown(layer)} after it{remark}")
    rewriter.discard(node, layer)


def _addition_behind(graph: Graph, layer: Node, moved: np.ndarray) -> tuple[Node | None, int, np.ndarray]:
    """A MatMul has no bias: the Add of a constant behind it, the port and the new values; None asks for a new Add."""
    uses = graph.consumers(layer.outputs[0])
    if len(uses) == 1 and is_op(uses[0].node, "Add") and not graph.is_output(layer.outputs[0]):
        addition, port = uses[0].node, 1 - uses[0].port
        if graph.is_constant(addition.inputs[port]):
            added = constant_values(graph, addition, port, "operand")
            if added.ndim < 2 or added.shape[:-1] == (1,):
                return addition, port, added + moved
    return None, 0, moved


def _add_behind(rewriter: Rewriter, layer: Node, values: np.ndarray) -> Node:
    graph = rewriter.graph
    constant = graph.add_constant(f"{layer.name}_bias", values)
    return graph.insert_after(layer.outputs[0], "Add", extra_inputs=[constant], name=f"{layer.name}_add")


def _bias(graph: Graph, layer: Node, channels: int) -> np.ndarray:
    """What a Conv, ConvTranspose or Gemm adds to its products; a Gemm's may also have rows."""
    if not is_op(layer, "Gemm"):
        return bias_or_zeros(graph, layer, channels)
    if not has_input(layer, BIAS):
        return np.zeros(channels)
    return constant_values(graph, layer, BIAS, "bias") * float(layer.attrs.get("beta", 1.0))


def _matmul_of(graph: Graph, addition: Node) -> Node:
    layer: Node | None = graph.producer(addition.inputs[1 - _constant_port(graph, addition)])
    if layer is None or not is_op(layer, "MatMul"):
        raise Declined("")
    return layer


def _constant_port(graph: Graph, addition: Node) -> int:
    for port in (1, 0):
        if graph.is_constant(addition.inputs[port]):
            return port
    raise Declined("")


def _require_matrix_product(graph: Graph, layer: Node, weight: np.ndarray, node: Node) -> None:
    """BatchNormalization works on axis 1, which is the channel axis of a matrix product with two dimensions only."""
    if not is_op(layer, "MatMul"):
        return
    if weight.ndim != 2:
        raise Declined(f"the weight of {shown(layer)} has {weight.ndim} dimensions, not 2")
    ranks = {len(shape) for t in (node.inputs[0], node.outputs[0]) if (shape := graph.shape(t)) is not None}
    if not ranks:
        raise Declined(f"the rank of '{node.inputs[0].name}' is not known; {shown(layer)} must work on a matrix")
    if ranks != {2}:
        raise Declined(f"it works on axis 1 of {max(ranks)} axes, the channels of {shown(layer)} are on the last one")


def _require_constant_response(layer: Node, affine: Affine) -> None:
    """Decline where a constant input would not lead to a constant output: borders, transposed inputs."""
    if is_op(layer, "ConvTranspose"):
        raise Declined(f"folding into {shown(layer)} after it is not exact at the borders")
    if is_op(layer, "Gemm") and layer.attrs.get("transA", 0):
        raise Declined(f"{shown(layer)} after it transposes its input")
    if not is_op(layer, "Conv") or not np.any(affine.shift):
        return
    automatic = layer.attrs.get("auto_pad", "NOTSET")
    if automatic in ("SAME_UPPER", "SAME_LOWER") or (automatic == "NOTSET" and any(layer.attrs.get("pads", ()))):
        raise Declined(f"{shown(layer)} after it pads with zeros, which stand for 0 after this node but not before it")
