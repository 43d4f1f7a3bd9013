"""Builds networks layer by layer with random, seeded weights."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class NetworkBuilder:
    """Appends layers to a graph; every method takes and returns tensor names. Channels are tracked by name."""

    def __init__(self, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.channels: dict[str, int] = {}

    def constant(self, hint: str, values: np.ndarray) -> str:
        name = f"{hint}.{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(values, name))
        return name

    def node(self, op: str, inputs: list[str], **attributes: object) -> str:
        output = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [output], name=f"{op}_{len(self.nodes)}", **attributes))
        if inputs and inputs[0] in self.channels:
            self.channels[output] = self.channels[inputs[0]]
        return output

    def conv(self, x: str, out: int, kernel: int, stride: int = 1, group: int = 1, gain: float = 1.0) -> str:
        inner = self.channels[x] // group
        deviation = gain * np.sqrt(2.0 / (inner * kernel * kernel))
        weight = self.random.normal(0, deviation, (out, inner, kernel, kernel)).astype(np.float32)
        bias = self.random.normal(0, 0.05, out).astype(np.float32)
        inputs = [x, self.constant("weight", weight), self.constant("bias", bias)]
        pads = [kernel // 2] * 4
        y = self.node("Conv", inputs, kernel_shape=[kernel] * 2, pads=pads, strides=[stride] * 2, group=group)
        self.channels[y] = out
        return y

    def batchnorm(self, x: str) -> str:
        count = self.channels[x]
        scale = self.random.uniform(0.8, 1.2, count).astype(np.float32)
        shift = self.random.normal(0, 0.05, count).astype(np.float32)
        mean = self.random.normal(0, 0.05, count).astype(np.float32)
        variance = self.random.uniform(0.8, 1.2, count).astype(np.float32)
        names = [self.constant("bn", values) for values in (scale, shift, mean, variance)]
        return self.node("BatchNormalization", [x, *names])

    def relu(self, x: str) -> str:
        return self.node("Relu", [x])

    def prelu(self, x: str) -> str:
        slopes = self.random.uniform(0.05, 0.45, (self.channels[x], 1, 1)).astype(np.float32)
        return self.node("PRelu", [x, self.constant("slope", slopes)])

    def relu6(self, x: str) -> str:
        bounds = [self.constant("clip", np.float32(v)) for v in (0.0, 6.0)]
        return self.node("Clip", [x, *bounds])

    def classifier(self, x: str, classes: int) -> str:
        pooled = self.node("Flatten", [self.node("GlobalAveragePool", [x])])
        inner = self.channels[x]
        weight = self.random.normal(0, np.sqrt(1.0 / inner), (classes, inner)).astype(np.float32)
        bias = self.random.normal(0, 0.05, classes).astype(np.float32)
        return self.node("Gemm", [pooled, self.constant("fc", weight), self.constant("fc_bias", bias)], transB=1)

    def linear(self, x: str, inner: int, out: int) -> str:
        """MatMul and Add, as exporters write a fully connected layer on more than two axes."""
        weight = self.random.normal(0, np.sqrt(1.0 / inner), (inner, out)).astype(np.float32)
        bias = self.random.normal(0, 0.02, out).astype(np.float32)
        return self.node(
            "Add", [self.node("MatMul", [x, self.constant("weight", weight)]), self.constant("bias", bias)]
        )

    def layer_norm(self, x: str, width: int) -> str:
        scale = self.random.uniform(0.8, 1.2, width).astype(np.float32)
        shift = self.random.normal(0, 0.02, width).astype(np.float32)
        return self.node("LayerNormalization", [x, self.constant("ln", scale), self.constant("ln", shift)], axis=-1)

    def gelu(self, x: str) -> str:
        """x * (1 + erf(x / sqrt(2))) / 2 in five nodes, as exporters write it before opset 20."""
        root, one, half = (self.constant("gelu", np.float32(value)) for value in (np.sqrt(2), 1.0, 0.5))
        bell = self.node("Add", [self.node("Erf", [self.node("Div", [x, root])]), one])
        return self.node("Mul", [self.node("Mul", [x, bell]), half])

    def model(
        self,
        name: str,
        input_shape: list[int | str],
        output: str,
        output_shape: list[int | str],
        *,
        input_name: str = "input",
        element_type: int = TensorProto.FLOAT,
    ) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info(input_name, element_type, input_shape)],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, output_shape)],
            self.initializers,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
