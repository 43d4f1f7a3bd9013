"""Six small networks with the structures that targets differ on, each with samples: what every backend is tried on.

Weights are drawn with fixed seeds and numbers are computed along the way in float64, so that a BatchNormalization holds
the mean and variance of what really arrives there, and activations have the size that training gives them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tests.zoo_graphs.net import Net

Samples = list[dict[str, np.ndarray]]
SAMPLES = 16
LOOKED_AT = 4
"""Samples that set the statistics of a BatchNormalization."""


@dataclass(frozen=True)
class GoldenGraph:
    """A float model of opset 17 with batch 1, and samples for its inputs."""

    model: onnx.ModelProto
    samples: Samples


class TrainedNet(Net):
    """A net that knows the values of every tensor on a few samples, so that layers can be fitted to them."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.samples: Samples = []
        self._known: dict[str, list[np.ndarray]] = {}

    def feed(self, name: str, shape: Sequence[int], draw: Callable[[int], np.ndarray]) -> str:
        """An input whose samples `draw` makes, one for each index."""
        self.input(name, list(shape))
        self.samples = [{name: np.asarray(draw(index), np.float32)} for index in range(SAMPLES)]
        self._known[name] = [sample[name].astype(np.float64) for sample in self.samples[:LOOKED_AT]]
        return name

    def constant(self, values: Any, name: str | None = None) -> str:
        name = super().constant(values, name)
        held = numpy_helper.to_array(self.initializers[-1])
        self._known[name] = [held.astype(np.float64) if held.dtype == np.float32 else held] * LOOKED_AT
        return name

    def weight(self, *shape: int, fan_in: int | None = None, gain: float = 2.0, name: str | None = None) -> str:
        """Without the far ends of the normal distribution, which training with weight decay does not leave either."""
        spread = np.sqrt(gain / (fan_in or int(np.prod(shape[1:]))))
        values = np.clip(self.rng.normal(0, spread, shape), -2 * spread, 2 * spread)
        return self.floats(values, name or self._fresh("weight"))

    def many(
        self,
        op: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        *,
        name: str | None = None,
        domain: str = "",
        **attributes: Any,
    ) -> tuple[str, ...]:
        made = super().many(op, inputs, outputs, name=name, domain=domain, **attributes)
        if all(read in self._known or not read for read in inputs) and op != "If":
            run = ReferenceEvaluator(self._alone(self.nodes[-1]))
            feeds = [{read: self._known[read][i] for read in inputs if read} for i in range(LOOKED_AT)]
            results = [run.run(None, feed) for feed in feeds]
            for port, output in enumerate(made):
                self._known[output] = [result[port] for result in results]
        return made

    def _alone(self, node: onnx.NodeProto) -> onnx.ModelProto:
        """A model of one node in float64, for the reference evaluator."""
        tensors = {
            name: helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(self._known[name][0].dtype), None)
            for name in node.input
            if name
        }
        outputs = [helper.make_tensor_value_info(name, onnx.TensorProto.UNDEFINED, None) for name in node.output]
        graph = helper.make_graph([node], "alone", list(tensors.values()), outputs)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])

    def batch_norm(self, x: str, channels: int) -> str:
        """Normalises what arrives, then scales and shifts each channel a little, as a trained layer does."""
        seen = np.concatenate(self._known[x])
        axes = (0, *range(2, seen.ndim))
        mean, variance = (np.round(part, 4) for part in (seen.mean(axes), seen.var(axes)))
        gamma = self.floats(self.rng.uniform(0.7, 1.3, channels))
        beta = self.floats(self.rng.normal(0, 0.3, channels))
        held = [self.floats(mean), self.floats(np.maximum(variance, 0.01))]
        return self.node("BatchNormalization", x, gamma, beta, *held)

    def block(self, x: str, channels_in: int, channels_out: int, kernel: int = 3, **attributes: Any) -> str:
        """Conv, BatchNormalization."""
        return self.batch_norm(self.conv(x, channels_in, channels_out, kernel, bias=False, **attributes), channels_out)

    def block_relu(self, x: str, channels_in: int, channels_out: int, kernel: int = 3, **attributes: Any) -> str:
        return self.relu(self.block(x, channels_in, channels_out, kernel, **attributes))

    def head(self, x: str, channels_in: int, channels_out: int) -> str:
        """A last convolution, whose results have means of their own, as boxes and depths do."""
        bias = self.floats(self.rng.normal(0, 1.5, channels_out))
        return self.node("Conv", x, self.weight(channels_out, channels_in, 1, 1), bias)

    def finished(self) -> GoldenGraph:
        return GoldenGraph(self.model(), self.samples)


def residual() -> GoldenGraph:
    """ResNet: blocks with a skip, one of them through a 1 x 1 convolution; pooled and classified."""
    net = TrainedNet("residual")
    x = net.feed("image", [1, 3, 16, 16], lambda _: net.image(1, 3, 16, 16))
    stem = net.block_relu(x, 3, 12)
    first = net.block(net.block_relu(stem, 12, 12), 12, 12)
    joined = net.relu(net.node("Add", first, stem))
    second = net.block(net.block_relu(joined, 12, 16, strides=[2, 2]), 16, 16)
    shortcut = net.block(joined, 12, 16, 1, strides=[2, 2])
    net.output(net.classifier(net.relu(net.node("Add", second, shortcut)), 16))
    return net.finished()


def depthwise() -> GoldenGraph:
    """MobileNet: Relu6 as Clip, depthwise convolutions, HardSwish, an AveragePool in front of the classifier."""
    net = TrainedNet("depthwise")
    x = net.feed("image", [1, 3, 16, 16], lambda _: net.image(1, 3, 16, 16))

    def relu6(x: str) -> str:
        return net.node("Clip", x, net.floats(0.0), net.floats(6.0))

    stem = relu6(net.block(x, 3, 8, strides=[2, 2]))
    narrow = net.block(relu6(net.block(stem, 8, 8, group=8)), 8, 12, 1)
    wide = net.node("HardSwish", net.block(narrow, 12, 32, 1))
    inner = net.node("HardSwish", net.block(wide, 32, 32, group=32))
    joined = net.node("Add", net.block(inner, 32, 12, 1), narrow)
    last = relu6(net.block(joined, 12, 24, 1))
    pooled = net.node("AveragePool", last, kernel_shape=[4, 4], strides=[4, 4])
    net.output(net.gemm(net.node("Flatten", pooled), 96, 10))
    return net.finished()


def concat() -> GoldenGraph:
    """Inception: three branches and a MaxPool joined, part of the channels taken, enlarged to twice the size."""
    net = TrainedNet("concat")
    x = net.feed("image", [1, 3, 12, 12], lambda _: net.image(1, 3, 12, 12))
    stem = net.block_relu(x, 3, 12)
    pool = net.node("MaxPool", stem, kernel_shape=[3, 3], pads=[1] * 4)
    branches = [
        net.block_relu(stem, 12, 8, 1),
        net.block_relu(net.block_relu(stem, 12, 8, 1), 8, 8),
        net.block_relu(pool, 12, 6, 1),
        pool,
    ]
    joined = net.node("Concat", *branches, axis=1)
    part = net.node("Slice", joined, net.ints(2), net.ints(26), net.ints(1))
    scales = net.floats([1.0, 1.0, 2.0, 2.0])
    attributes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    large = net.node("Resize", part, "", scales, **attributes)
    net.output(net.head(net.block_relu(large, 24, 8), 8, 4))
    return net.finished()


def transformer() -> GoldenGraph:
    """One block with two heads: LayerNormalization, attention, GELU as exporters write it, residuals, a classifier."""
    net = TrainedNet("transformer")
    tokens, width, heads = 12, 24, 2
    x = net.feed("tokens", [1, tokens, width], lambda _: net.normal(1, tokens, width))

    def norm(x: str) -> str:
        weight, bias = net.rng.uniform(0.7, 1.3, width), net.rng.normal(0, 0.1, width)
        return net.node("LayerNormalization", x, net.floats(weight), net.floats(bias), axis=-1)

    def split(x: str, order: list[int]) -> str:
        shaped = net.node("Reshape", net.linear(x, width, width), net.ints(1, tokens, heads, width // heads))
        return net.node("Transpose", shaped, perm=order)

    inside = norm(x)
    query, key, value = (split(inside, order) for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
    scores = net.node("Div", net.node("MatMul", query, key), net.floats(np.sqrt(width // heads)))
    mixed = net.node("MatMul", net.node("Softmax", scores, axis=-1), value)
    merged = net.node("Reshape", net.node("Transpose", mixed, perm=[0, 2, 1, 3]), net.ints(1, tokens, width))
    attended = net.node("Add", x, net.linear(merged, width, width))

    wide = net.linear(norm(attended), width, 2 * width)
    erf = net.node("Erf", net.node("Div", wide, net.floats(np.sqrt(2.0))))
    gelu = net.node("Mul", net.node("Mul", wide, net.node("Add", erf, net.floats(1.0))), net.floats(0.5))
    result = net.node("Add", attended, net.linear(gelu, 2 * width, width))
    net.output(net.linear(norm(result), width, 8))
    return net.finished()


def detector() -> GoldenGraph:
    """YOLO: a backbone, a coarse map enlarged and joined to a fine one, heads on both, boxes and scores as outputs."""
    net = TrainedNet("detector")
    x = net.feed("image", [1, 3, 32, 32], lambda _: net.image(1, 3, 32, 32))
    fine = net.block_relu(net.block_relu(x, 3, 8, strides=[2, 2]), 8, 12, strides=[2, 2])
    coarse = net.block_relu(fine, 12, 16, strides=[2, 2])
    lateral = net.block_relu(coarse, 16, 8, 1)
    attributes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    enlarged = net.node("Resize", lateral, "", net.floats([1.0, 1.0, 2.0, 2.0]), **attributes)
    joined = net.block_relu(net.node("Concat", enlarged, fine, axis=1), 20, 12)
    rows = []
    for features, channels in ((joined, 12), (coarse, 16)):
        head = net.node("Reshape", net.head(features, channels, 7), net.ints(1, 7, -1))
        rows.append(net.node("Transpose", head, perm=[0, 2, 1]))
    everything = net.node("Concat", *rows, axis=1)
    boxes = net.node("Slice", everything, net.ints(0), net.ints(4), net.ints(2))
    classes = net.node("Slice", everything, net.ints(4), net.ints(7), net.ints(2))
    net.output(net.node("Identity", boxes, output="boxes"))
    net.output(net.node("Sigmoid", classes, output="scores"))
    return net.finished()


def if_body() -> GoldenGraph:
    """Convolutions in both branches of an If that looks at the brightness of the image, and around it."""
    net = TrainedNet("if_body")
    shape = (1, 3, 12, 12)
    x = net.feed("image", shape, lambda index: net.image(*shape) * 0.5 + (0.6 if index % 2 else -0.6))
    stem = net.block_relu(x, 3, 8)
    bright = net.node("Greater", net.node("ReduceMean", x, keepdims=0), net.floats(0.0))
    then, otherwise = net.branch("then"), net.branch("otherwise")
    then.output(then.conv_relu(stem, 8, 8), [1, 8, 12, 12])
    inner = otherwise.conv_relu(stem, 8, 12, 1)
    otherwise.output(otherwise.node("Add", otherwise.conv(inner, 12, 8), stem), [1, 8, 12, 12])
    y = net.node("If", bright, then_branch=then.graph(), else_branch=otherwise.graph())
    net.output(net.classifier(net.conv_relu(y, 8, 16, strides=[2, 2]), 16))
    return net.finished()


@cache
def _built(build: Callable[[], GoldenGraph]) -> tuple[bytes, Samples]:
    made = build()
    onnx.checker.check_model(made.model, full_check=True)
    return made.model.SerializeToString(deterministic=True), made.samples


def _again(build: Callable[[], GoldenGraph]) -> Callable[[], GoldenGraph]:
    """The same graph at every call, built once, each time in an object of the caller's own."""

    def give() -> GoldenGraph:
        data, samples = _built(build)
        return GoldenGraph(onnx.load_from_string(data), [dict(sample) for sample in samples])

    return give


GOLDEN: dict[str, Callable[[], GoldenGraph]] = {
    build.__name__: _again(build) for build in (residual, depthwise, concat, transformer, detector, if_body)
}
