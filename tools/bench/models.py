"""Networks of known size with random, seeded weights: times carry over from them, accuracies do not."""

from __future__ import annotations

from collections.abc import Callable

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

    def relu6(self, x: str) -> str:
        bounds = [self.constant("clip", np.float32(v)) for v in (0.0, 6.0)]
        return self.node("Clip", [x, *bounds])

    def classifier(self, x: str, classes: int) -> str:
        pooled = self.node("Flatten", [self.node("GlobalAveragePool", [x])])
        inner = self.channels[x]
        weight = self.random.normal(0, np.sqrt(1.0 / inner), (classes, inner)).astype(np.float32)
        bias = self.random.normal(0, 0.05, classes).astype(np.float32)
        return self.node("Gemm", [pooled, self.constant("fc", weight), self.constant("fc_bias", bias)], transB=1)

    def model(self, name: str, input_shape: list[int | str], output: str, opset: int = 17) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info("input", TensorProto.FLOAT, input_shape)],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
            self.initializers,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def resnet50(size: int = 224) -> onnx.ModelProto:
    """ResNet-50: 53 convolutions with batch normalization, 25 million weights."""
    net = NetworkBuilder(50)
    net.channels["input"] = 3
    x = net.relu(net.batchnorm(net.conv("input", 64, 7, 2)))
    x = net.node("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            step = stride if block == 0 else 1
            shortcut = x
            if block == 0:
                shortcut = net.batchnorm(net.conv(x, 4 * width, 1, step))
            y = net.relu(net.batchnorm(net.conv(x, width, 1)))
            y = net.relu(net.batchnorm(net.conv(y, width, 3, step)))
            y = net.batchnorm(net.conv(y, 4 * width, 1))
            x = net.relu(net.node("Add", [y, shortcut]))
            net.channels[x] = 4 * width
    return net.model("resnet50", ["batch", 3, size, size], net.classifier(x, 1000))


def mobilenetv2(size: int = 224) -> onnx.ModelProto:
    """MobileNetV2: 52 convolutions, 17 of them depthwise, ReLU6."""
    net = NetworkBuilder(2)
    net.channels["input"] = 3
    x = net.relu6(net.batchnorm(net.conv("input", 32, 3, 2)))
    settings = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )
    for expansion, out, repeats, stride in settings:
        for repeat in range(repeats):
            before, inner = x, net.channels[x] * expansion
            y = x if expansion == 1 else net.relu6(net.batchnorm(net.conv(x, inner, 1)))
            y = net.relu6(net.batchnorm(net.conv(y, inner, 3, stride if repeat == 0 else 1, group=inner)))
            x = net.batchnorm(net.conv(y, out, 1))
            if repeat and net.channels[before] == out:
                x = net.node("Add", [x, before])
                net.channels[x] = out
    x = net.relu6(net.batchnorm(net.conv(x, 1280, 1)))
    return net.model("mobilenetv2", ["batch", 3, size, size], net.classifier(x, 1000))


def residual_chain(nodes: int) -> onnx.ModelProto:
    """A long chain of Conv - BatchNormalization - Relu - Add on a tiny image: graph work without arithmetic.

    Branches are weak, so that thousands of residual additions stay finite.
    """
    net = NetworkBuilder(4)
    net.channels["input"] = 4
    x = "input"
    for _ in range(nodes // 4):
        y = net.relu(net.batchnorm(net.conv(x, 4, 1, gain=0.01)))
        x = net.node("Add", [y, x])
        net.channels[x] = 4
    return net.model("chain", ["batch", 4, 4, 4], x)


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {"resnet50": resnet50, "mobilenetv2": mobilenetv2}


def images(count: int, size: int = 224, seed: int = 0) -> list[dict[str, np.ndarray]]:
    """Structured random images: smooth gradients, blobs and noise, normalised like photographs."""
    random = np.random.default_rng(seed)
    grid = np.stack(np.meshgrid(np.linspace(-1, 1, size), np.linspace(-1, 1, size)))
    feeds = []
    for _ in range(count):
        slopes, centre = random.normal(0, 0.7, (3, 2)), random.uniform(-1, 1, (3, 2))
        smooth = np.einsum("cd,dhw->chw", slopes, grid)
        blob = np.exp(-4 * ((grid[None] - centre[:, :, None, None]) ** 2).sum(axis=1)) * random.normal(0, 2, (3, 1, 1))
        image = smooth + blob + random.normal(0, 0.3, (3, size, size))
        feeds.append({"input": image[None].astype(np.float32)})
    return feeds
