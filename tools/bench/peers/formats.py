"""Names of number formats that all tools are asked for, and the layers that keep 8 bits in the narrow ones."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

W8A8 = "W8A8"
W8A8_PER_TENSOR = "W8A8 per tensor"
W4A8 = "W4A8"
W4A4 = "W4A4"
W4 = "W4 weight-only"
W4_ZERO_POINTS = "W4 weight-only, zero points"
FORMATS = (W8A8, W8A8_PER_TENSOR, W4A8, W4A4, W4, W4_ZERO_POINTS)
BLOCK = 32
"""Weights that share a scale, and a zero point where there is one, in the last two."""


@dataclass(frozen=True)
class Layer:
    """The node, its weight, the axis of the weight's output channels, and the tensor that it reads."""

    node: str
    weight: str
    axis: int
    activation: str


def ends(model: onnx.ModelProto) -> tuple[Layer, ...]:
    """The first and the last layer with a constant weight, in the order of the file."""
    constants = {value.name for value in model.graph.initializer}
    constants |= {node.output[0] for node in model.graph.node if node.op_type == "Constant"}
    layers = [
        Layer(node.name, node.input[1], _output_axis(node), node.input[0])
        for node in model.graph.node
        if node.op_type in ("Conv", "Gemm", "MatMul") and node.input[1] in constants
    ]
    return (layers[0], layers[-1]) if layers else ()


def _output_axis(node: onnx.NodeProto) -> int:
    turned = any(attribute.name == "transB" and attribute.i for attribute in node.attribute)
    return 0 if node.op_type == "Conv" or turned else 1
