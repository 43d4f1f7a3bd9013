"""Integer sums that are scaled back to float, as dynamic quantization writes them.

    DynamicQuantizeLinear(x) -> q, s, z
    Mul(Cast(ConvInteger(q, W, z, w_z)), Mul(s, w_s))                             -> Conv(x, (W - w_z) * w_s)
    Mul(Cast(Add(ConvInteger(...), Cast(Round(Div(b, Mul(s, w_s)))))), Mul(s, w_s)) -> Conv(x, (W - w_z) * w_s, b)
    Mul(Cast(MatMulInteger(q, q2, z, z2)), Mul(s, s2))                            -> MatMul(x, x2)

A scale is looked at as a product of tensors. What the sums have been divided by has to be among them, and what is left
is the scale of the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto

from onnxq.errors import SpecError
from onnxq.graph import Graph, Node
from onnxq.passes.rewriter import has_input, is_op
from onnxq.strip.grid import Grid, Stays
from onnxq.strip.numbers import parameters, real_values
from onnxq.strip.reals import Reals

_ROUNDING = ("Floor", "Round", "Ceil")
_RESHAPING = ("Reshape", "Unsqueeze", "Squeeze")
_MOST_FACTORS = 8


@dataclass(frozen=True)
class _Sum:
    """What a node has added up: the layer, and the float constant that was added to it, divided by these factors."""

    layer: Node
    bias: Any | None = None
    divided_by: tuple[Any, ...] = ()


def scaled_sum(reals: Reals, node: Node) -> Any | None:
    """The float tensor that a Mul stands for, if it scales integer sums back; None for any other Mul."""
    graph = reals.graph
    for port in (0, 1):
        found = _sum(graph, node.inputs[port])
        if found is None:
            continue
        try:
            if not _casts_to_float(graph, node.inputs[port]):
                raise Stays("its sums become another type than float32")
            return _layer(reals, found, _factors(graph, node.inputs[1 - port]))
        except (Stays, SpecError) as reason:
            raise Stays(str(reason), found.layer.name) from None
    return None


def _casts_to_float(graph: Graph, tensor: Any) -> bool:
    cast = graph.producer(tensor)
    return is_op(cast, "Cast") and int(cast.attrs["to"]) == TensorProto.FLOAT


def _sum(graph: Graph, tensor: Any) -> _Sum | None:
    node = graph.producer(tensor)
    if is_op(node, "Cast"):
        return _sum(graph, node.inputs[0])
    if is_op(node, "ConvInteger", "MatMulInteger"):
        return _Sum(node)
    if is_op(node, "Add"):
        for port in (0, 1):
            layer, divided = graph.producer(node.inputs[port]), _divided(graph, node.inputs[1 - port])
            if is_op(layer, "ConvInteger", "MatMulInteger") and divided is not None:
                return _Sum(layer, divided.inputs[0], _factors(graph, divided.inputs[1]))
    return None


def _divided(graph: Graph, tensor: Any) -> Node | None:
    """The Div of a constant by a scale, whose result was rounded."""
    node = graph.producer(tensor)
    while node is not None and not node.domain and node.op in (*_ROUNDING, *_RESHAPING, "Cast"):
        node = graph.producer(node.inputs[0])
    return node if is_op(node, "Div") and graph.is_constant(node.inputs[0]) else None


def _factors(graph: Graph, tensor: Any) -> tuple[Any, ...]:
    """The tensors whose product a tensor is."""
    found: list[Any] = []
    pending = [tensor]
    while pending:
        current = pending.pop()
        node = graph.producer(current)
        if is_op(node, "Mul") and len(found) + len(pending) < _MOST_FACTORS:
            pending.extend(node.inputs)
        else:
            found.append(current)
    return tuple(found)


def _layer(reals: Reals, found: _Sum, factors: Sequence[Any]) -> Any:
    graph, layer = reals.graph, found.layer
    left = list(factors)
    operands: list[Any] = []
    for port in (0, 1):
        codes = layer.inputs[port]
        zeros = layer.inputs[port + 2] if has_input(layer, port + 2) else None
        if graph.is_constant(codes):
            operands.append(None)
            continue
        own = reals.own_grid(codes)
        grid = Grid(own.scale, zeros, own.axis, own.block)
        if not any(factor is grid.scale for factor in left):
            raise Stays(f"its sums are not multiplied by '{grid.scale.name}', the scale of its input")
        left = [factor for factor in left if factor is not grid.scale]
        operands.append(reals.real(codes, grid))
    if operands[0] is None and operands[1] is None:
        raise Stays("it multiplies constants with each other")
    for port in (0, 1):
        if operands[port] is None:
            operands[port] = _weight(reals, layer, port, left)
            left = []
    if left:
        raise Stays(f"its sums are multiplied by '{left[0].name}', which is no scale of its inputs")
    if found.bias is None:
        return _add(reals, layer, operands, None)
    if {id(factor) for factor in found.divided_by} != {id(factor) for factor in factors}:
        raise Stays(f"its bias '{found.bias.name}' is divided by another scale than the sums are multiplied by")
    return _add(reals, layer, operands, found.bias)


def _add(reals: Reals, layer: Node, operands: Sequence[Any], bias: Any | None) -> Any:
    op = layer.op.removesuffix("Integer")
    if op == "Conv" and bias is not None:
        return reals.add(layer, op, [*operands, bias], attrs=dict(layer.attrs))
    made = reals.add(layer, op, operands, attrs=dict(layer.attrs))
    return made if bias is None else reals.add(layer, "Add", [made, bias])


def _weight(reals: Reals, layer: Node, port: int, factors: Sequence[Any]) -> Any:
    """The real numbers of constant weights; what they are scaled by are the factors that are left."""
    graph = reals.graph
    for factor in factors:
        if not graph.is_constant(factor):
            raise Stays(f"its sums are multiplied by '{factor.name}', which is computed at run time")
    scale = np.asarray(np.float32(1))
    for factor in factors:
        scale = np.asarray(scale * graph.values(factor))
    codes = graph.values(layer.inputs[port])
    zeros = Grid(None, layer.inputs[port + 2] if has_input(layer, port + 2) else None).zero_point_values(graph)
    axis = _channel_axis(layer, port, codes.ndim)
    found = parameters(codes.dtype.name, _listed(layer, scale, codes.shape[axis]), zeros, shape=codes.shape, axis=axis)
    if zeros is not None and zeros.size > 1 and found.scale.ndim == 0:
        scales = np.full(zeros.size, found.scale, np.float32)
        found = parameters(codes.dtype.name, scales, zeros.reshape(-1), shape=codes.shape, axis=axis)
    values = real_values(codes, found, np.dtype(scale.dtype))
    return reals.constant(f"{layer.inputs[port].name}_float", layer, values)


def _channel_axis(layer: Node, port: int, rank: int) -> int:
    if layer.op == "ConvInteger":
        return 0
    return rank - 1 if port == 1 else max(rank - 2, 0)


def _listed(layer: Node, scale: np.ndarray, channels: int) -> np.ndarray:
    """Scales as they are broadcast against the result, as a list: one for each channel, or one for all."""
    if scale.size == 1:
        return scale.reshape(())
    # Channels of a convolution stand in front of its places, those of a product last.
    behind = 0 if layer.op == "MatMulInteger" else len(layer.attrs.get("kernel_shape", (1, 1)))
    wanted = (channels,) + (1,) * behind
    if scale.shape[-len(wanted) :] != wanted or scale.size != channels:
        raise Stays(f"its scales have the shape {list(scale.shape)}, which does not belong to its {channels} channels")
    return scale.reshape(-1)
