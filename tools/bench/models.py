"""Networks of known size with random, seeded weights: times carry over from them, accuracies do not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto

from tools.bench.network import NetworkBuilder


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
    return net.model("resnet50", ["batch", 3, size, size], net.classifier(x, 1000), ["batch", 1000])


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
    return net.model("mobilenetv2", ["batch", 3, size, size], net.classifier(x, 1000), ["batch", 1000])


def mobilefacenet(size: int = 112) -> onnx.ModelProto:
    """MobileFaceNet (Chen et al. 2018): inverted residual blocks with a PRelu behind all convolutions but the last."""
    net = NetworkBuilder(4)
    net.channels["input"] = 3
    x = net.prelu(net.batchnorm(net.conv("input", 64, 3, 2)))
    x = net.prelu(net.batchnorm(net.conv(x, 64, 3, group=64)))
    for expansion, out, repeats, stride in (
        (2, 64, 5, 2),
        (4, 128, 1, 2),
        (2, 128, 6, 1),
        (4, 128, 1, 2),
        (2, 128, 2, 1),
    ):
        for repeat in range(repeats):
            before, inner = x, net.channels[x] * expansion
            y = net.prelu(net.batchnorm(net.conv(x, inner, 1)))
            y = net.prelu(net.batchnorm(net.conv(y, inner, 3, stride if repeat == 0 else 1, group=inner)))
            x = net.batchnorm(net.conv(y, out, 1))
            if net.channels[before] == out and (repeat or stride == 1):
                x = net.node("Add", [x, before])
                net.channels[x] = out
    x = net.prelu(net.batchnorm(net.conv(x, 512, 1)))
    return net.model("mobilefacenet", ["batch", 3, size, size], net.classifier(x, 512), ["batch", 512])


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
    return net.model("chain", ["batch", 4, 4, 4], x, ["batch", 4, 4, 4])


def wide(nodes: int = 1000) -> onnx.ModelProto:
    """Many parallel branches of Conv - Relu on a tiny image, added up in pairs: what each node costs by itself."""
    net = NetworkBuilder(3)
    net.channels["input"] = 4
    stem = net.relu(net.conv("input", 4, 1))
    branches = [net.relu(net.conv(stem, 4, 3, gain=0.1)) for _ in range((nodes - 1) // 3)]
    while len(branches) > 1:
        pairs = [branches[start : start + 2] for start in range(0, len(branches), 2)]
        branches = [net.node("Add", pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return net.model("wide", ["batch", 4, 8, 8], branches[0], ["batch", 4, 8, 8])


def bert(
    layers: int = 12, hidden: int = 768, heads: int = 12, sequence: int = 128, vocabulary: int = 30522
) -> onnx.ModelProto:
    """A BERT encoder as exporters write it: attention and GELU in single nodes, LayerNormalization whole."""
    net = NetworkBuilder(7)
    words = net.random.normal(0, 0.05, (vocabulary, hidden)).astype(np.float32)
    positions = net.random.normal(0, 0.05, (sequence, hidden)).astype(np.float32)
    embedded = net.node("Gather", [net.constant("words", words), "ids"])
    x = net.layer_norm(net.node("Add", [embedded, net.constant("positions", positions)]), hidden)
    for _ in range(layers):
        attended = net.linear(_attention(net, x, hidden, heads), hidden, hidden)
        x = net.layer_norm(net.node("Add", [attended, x]), hidden)
        inner = net.gelu(net.linear(x, hidden, 4 * hidden))
        x = net.layer_norm(net.node("Add", [net.linear(inner, 4 * hidden, hidden), x]), hidden)
    borders = ["batch", sequence], x, ["batch", sequence, hidden]
    return net.model("bert", *borders, input_name="ids", element_type=TensorProto.INT64)


def _attention(net: NetworkBuilder, x: str, hidden: int, heads: int) -> str:
    split = net.constant("split", np.array([0, 0, heads, hidden // heads], np.int64))
    join = net.constant("join", np.array([0, 0, hidden], np.int64))
    root = net.constant("root", np.float32(np.sqrt(hidden // heads)))
    query, key, value = (
        net.node("Transpose", [net.node("Reshape", [net.linear(x, hidden, hidden), split])], perm=order)
        for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    )
    weights = net.node("Softmax", [net.node("Div", [net.node("MatMul", [query, key]), root])], axis=-1)
    context = net.node("Transpose", [net.node("MatMul", [weights, value])], perm=[0, 2, 1, 3])
    return net.node("Reshape", [context, join])


def tiny() -> onnx.ModelProto:
    """Three layers on an 8 x 8 image, for trying the benchmarks themselves."""
    net = NetworkBuilder(1)
    net.channels["input"] = 3
    x = net.relu(net.batchnorm(net.conv("input", 8, 3)))
    x = net.relu(net.conv(x, 8, 3))
    return net.model("tiny", ["batch", 3, 8, 8], net.classifier(x, 10), ["batch", 10])


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "resnet50": resnet50,
    "mobilenetv2": mobilenetv2,
    "mobilefacenet": mobilefacenet,
    "bert_base": bert,
    "wide1k": wide,
    "tiny": tiny,
}
