"""Layers fitted position by position: patches are what the layer reads, and others are fitted to whole samples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import parser

from onnxq.ptq.reconstruction.blocks import Segment, partition
from onnxq.ptq.reconstruction.fitting import positions as module
from onnxq.ptq.reconstruction.fitting.batches import BlockSamples, FitData
from onnxq.ptq.reconstruction.fitting.fit import loss_of
from onnxq.ptq.reconstruction.fitting.positions import PointLayer, Positions, point_layer, positions
from onnxq.ptq.reconstruction.fitting.segment_net import FitNet, float_net, quantized_net
from onnxq.ptq.reconstruction.fitting.streams import Stream, store
from onnxq.ptq.reconstruction.learnable import Rules
from onnxq.ptq.reconstruction.recipe import Recipe
from onnxq.torchnet.values import from_numpy
from tests.ptq.reconstruction.small_models import Case, case

SAMPLES = 8
THREE_BITS = {"node": {"re:.*": {"weight": {"bits": 3}}}}
"""Also for the first and the last layer, which have 8 otherwise."""
RECIPE = Recipe("adaround", "layer", "roundings", False, 30, 32, 0.02, 64)

CONVOLUTIONS = {
    "pads": ("[1,4,9,7]", "[6,4,3,3]", "pads=[1,1,1,1]"),
    "uneven pads": ("[1,4,9,7]", "[6,4,3,2]", "pads=[0,1,2,0]"),
    "strides": ("[1,4,9,8]", "[6,4,3,3]", "pads=[1,1,1,1], strides=[2,3]"),
    "dilations": ("[1,4,9,9]", "[6,4,3,3]", "dilations=[2,3], pads=[2,3,2,3]"),
    "groups": ("[1,4,6,6]", "[6,2,3,3]", "group=2, pads=[1,1,1,1]"),
    "depthwise": ("[1,6,6,6]", "[6,1,3,3]", "group=6, pads=[1,1,1,1], strides=[2,2]"),
    "one axis": ("[1,4,20]", "[6,4,5]", "pads=[2,2], strides=[2]"),
    "three axes": ("[1,2,4,5,6]", "[6,2,2,2,2]", "strides=[1,2,1]"),
    "same upper": ("[1,4,9,8]", "[6,4,4,3]", 'auto_pad="SAME_UPPER", strides=[2,2]'),
    "same lower": ("[1,4,9,8]", "[6,4,4,3]", 'auto_pad="SAME_LOWER", strides=[2,2]'),
    "batch of two": ("[2,4,6,6]", "[6,4,3,3]", "pads=[1,1,1,1]"),
}


def made(text: str, inputs: dict[str, tuple[int, ...]], weights: dict[str, tuple[int, ...]]) -> Case:
    random = np.random.default_rng(3)
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    for name, shape in weights.items():
        values = random.normal(size=shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    # Neighbours with much in common: for values that have nothing to do with one another the nearest number is best.
    feeds = [
        {name: (1 + random.normal(0, 0.3, shape)).astype(np.float32) for name, shape in inputs.items()}
        for _ in range(SAMPLES)
    ]
    return case(model, feeds, config=THREE_BITS)


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.strip("[]").split(","))


def convolution(kind: str) -> Case:
    shape, weight, attributes = CONVOLUTIONS[kind]
    any_shape = ",".join("abcde"[: len(numbers(shape))])
    text = f"g (float{shape} x) => (float[{any_shape}] y) {{ c = Conv<{attributes}>(x, w, b) y = Relu(c) }}"
    return made(text, {"x": numbers(shape)}, {"w": numbers(weight), "b": (6,)})


class Layer:
    """The segment of the first layer of a case, with the streams that it is fitted to."""

    def __init__(self, case: Case, folder: Path) -> None:
        graph, self.plan = case.state.graph, case.state.plan.active
        graph.sort()
        segments = partition(graph, self.plan, "layer")
        number = next(i for i, segment in enumerate(segments) if segment.weights)
        self.case, self.segment = case, segments[number]
        self.learnable = Rules(graph, self.plan, segments, RECIPE).of(number, self.segment)
        self.count = len(case.task.samples)
        with store(folder, 2**30) as room, torch.no_grad():
            exact, quantized = Stream(room), Stream(room)
            for feed in case.task.samples:
                for name in graph.input_names:
                    exact.append(name, from_numpy(feed[name]))
                    quantized.append(name, from_numpy(feed[name]))
            for segment in segments[: number + 1]:
                self._run(float_net(graph, segment), segment, exact)
                self._run(quantized_net(graph, segment, self.plan, case.state.qparams), segment, quantized)
            self.samples = BlockSamples(self.segment.reads, self.segment.makes, quantized, exact, self.count)

    def _run(self, net: object, segment: Segment, stream: Stream) -> None:
        for number in range(self.count):
            results = net(stream.row(segment.reads, number))  # type: ignore[operator]
            for name, value in zip(segment.makes, results, strict=True):
                stream.append(name, value)

    @property
    def layer(self) -> PointLayer | None:
        return point_layer(self.case.state.graph, self.segment, self.plan)

    def positions(self) -> Positions | None:
        layer = self.layer
        net = float_net(self.case.state.graph, self.segment, points=True)
        return None if layer is None else positions(layer, self.samples, net, 0)

    def loss(self, data: FitData, *, points: bool) -> float:
        state = replace(self.case.state, plan=self.plan)
        net = FitNet(state, state.graph, self.segment, RECIPE, self.learnable, points=points)
        return loss_of(net, data)


@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_the_positions_of_a_convolution_have_the_noise_of_its_images(kind: str, tmp_path: Path) -> None:
    layer = Layer(convolution(kind), tmp_path)
    points = layer.positions()
    assert points is not None
    whole = layer.loss(layer.samples, points=False)
    assert whole > 0
    assert layer.loss(points, points=True) == pytest.approx(whole, rel=1e-4)


@pytest.mark.parametrize(
    "text",
    [
        "g (float[1,5,8] x) => (float[1,5,6] y) { y = MatMul(x, w) }",
        "g (float[1,5,8] x) => (float[1,5,6] y) { m = MatMul(x, w) a = Add(m, b) y = Sigmoid(a) }",
        "g (float[1,5,8] x) => (float[5,6] y) { s = Squeeze(x) y = Gemm(s, w, b) }",
        "g (float[1,5,8] x) => (float[1,5,6] y) { s = Slice(x, zero, six, two) m = MatMul(x, w) y = Add(m, s) }",
    ],
    ids=["product", "bias and activation", "Gemm", "residual"],
)
def test_the_positions_of_a_product_have_the_noise_of_its_samples(text: str, tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    for name, shape in (("w", (8, 6)), ("b", (6,))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(random.normal(size=shape).astype(np.float32), name))
    for name, value in (("zero", 0), ("six", 6), ("two", 2)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([value]), name))
    feeds = [{"x": random.normal(size=(1, 5, 8)).astype(np.float32)} for _ in range(SAMPLES)]
    layer = Layer(case(model, feeds, config=THREE_BITS), tmp_path)
    points = layer.positions()
    assert points is not None
    assert layer.loss(points, points=True) == pytest.approx(layer.loss(layer.samples, points=False), rel=1e-4)


def test_gates_and_residuals_are_read_at_the_positions_of_the_layer(tmp_path: Path) -> None:
    text = """g (float[1,4,6,6] x, float[1,6,1,1] gate, float[1,6,6,6] r) => (float[1,6,6,6] y)
    { c = Conv<pads=[1,1,1,1]>(x, w) m = Mul(c, gate) y = Add(m, r) }"""
    inputs = {"x": (1, 4, 6, 6), "gate": (1, 6, 1, 1), "r": (1, 6, 6, 6)}
    layer = Layer(made(text, inputs, {"w": (6, 4, 3, 3)}), tmp_path)
    points = layer.positions()
    assert points is not None
    assert layer.loss(points, points=True) == pytest.approx(layer.loss(layer.samples, points=False), rel=1e-4)


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        ("{ c = Conv<pads=[1,1,1,1]>(x, w) y = Add(c, x) }", {"w": (4, 4, 3, 3)}),
        ("{ p = GlobalAveragePool(x) c = Conv(p, w) y = Mul(c, x) }", {"w": (4, 4, 1, 1)}),
        ("{ c = ConvTranspose<pads=[1,1,1,1]>(x, w) y = Relu(c) }", {"w": (4, 4, 3, 3)}),
        ("{ c = Conv<pads=[1,1,1,1]>(x, w) y = Mul(c, wide) }", {"w": (4, 4, 3, 3), "wide": (1, 1, 6, 6)}),
    ],
    ids=["reads its input twice", "gate of an image", "transposed", "constant with positions"],
)
def test_layers_whose_results_need_more_than_a_patch_are_fitted_to_whole_samples(
    text: str, weights: dict[str, tuple[int, ...]], tmp_path: Path
) -> None:
    fitted = made(f"g (float[1,4,6,6] x) => (float[1,4,6,6] y) {text}", {"x": (1, 4, 6, 6)}, weights)
    assert Layer(fitted, tmp_path).positions() is None
    found = fitted.run("adaround:iterations=200")
    assert found.changed
    assert fitted.evaluator(found.state).goodness > fitted.evaluator(fitted.state).goodness


def test_positions_of_each_sample_are_as_many_as_there_is_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_POSITIONS", 6 * 10)
    points = Layer(convolution("pads"), tmp_path).positions()
    assert points is not None
    assert len(points.held) + len(points.fitted) == 6 * 10  # 6 samples, 63 positions each
    assert points.per_step(2) == 2 * module.PER_SAMPLE


def test_rounding_by_positions_helps_on_other_samples() -> None:
    fitted = convolution("pads")
    found = fitted.run("adaround:iterations=300")
    assert fitted.evaluator(found.state).goodness > fitted.evaluator(fitted.state).goodness + 1.0
