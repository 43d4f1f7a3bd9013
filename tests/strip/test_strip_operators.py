"""Quantized operators of onnxruntime, one by one: the float form computes what the operator does, but for rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxq.graph import Graph
from onnxq.strip import strip
from tests.strip.quantized_models import nearness, outputs
from tests.zoo_graphs.net import Net

MICROSOFT = "com.microsoft"
STEP = 0.02
"""Of every quantized tensor here; values lie within +- 2.5."""


class QuantizedNet(Net):
    """A net whose input is quantized, and whose result is dequantized."""

    def __init__(self, name: str, shape: list[int], **options: Any) -> None:
        super().__init__(name, **options)
        self.domains[MICROSOFT] = 1
        self.shape = shape
        self.parameters = self.floats(STEP), self.constant(np.int8(3))
        self.codes = self.node("QuantizeLinear", self.input("x", shape), *self.parameters)

    def finish(self, codes: str, shape: list[int]) -> tuple[Any, Graph]:
        self.output(self.node("DequantizeLinear", codes, *self.parameters), shape)
        model = self.model()
        graph = Graph.from_model(self.model())
        assert strip(graph).left == ()
        return model, graph

    def feed(self) -> dict[str, np.ndarray]:
        return {"x": np.clip(self.rng.normal(0, 0.6, self.shape), -2, 2).astype(np.float32)}


UNARY = {
    "QLinearSigmoid": ("Sigmoid", {}),
    "QLinearLeakyRelu": ("LeakyRelu", {"alpha": 0.2}),
    "QLinearSoftmax": ("Softmax", {"axis": -1, "opset": 13}),
    "QLinearAveragePool": ("AveragePool", {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "QLinearGlobalAveragePool": ("GlobalAveragePool", {}),
}
SHAPES = {
    "QLinearAveragePool": [1, 2, 2, 2],
    "QLinearGlobalAveragePool": [1, 2, 1, 1],
}


@pytest.mark.parametrize("op", UNARY)
def test_operators_of_one_input(op: str) -> None:
    float_op, attributes = UNARY[op]
    net = QuantizedNet(f"strip_{op}", [1, 2, 4, 4], opset=17)
    codes = net.node(op, net.codes, *net.parameters, *net.parameters, domain=MICROSOFT, **attributes)
    model, graph = net.finish(codes, SHAPES.get(op, [1, 2, 4, 4]))
    assert [node.op for node in graph.nodes()] == [float_op]
    feed = net.feed()
    assert np.abs(outputs(model, feed)[0] - outputs(graph, feed)[0]).max() <= 1.6 * STEP


@pytest.mark.parametrize(("op", "float_op"), [("QLinearAdd", "Add"), ("QLinearMul", "Mul")])
def test_operators_of_two_inputs(op: str, float_op: str) -> None:
    net = QuantizedNet(f"strip_{op}", [3, 4])
    other = net.constant(net.rng.integers(-50, 50, (3, 4)).astype(np.int8))
    codes = net.node(op, net.codes, *net.parameters, other, *net.parameters, *net.parameters, domain=MICROSOFT)
    model, graph = net.finish(codes, [3, 4])
    assert [node.op for node in graph.nodes()] == [float_op]
    feed = net.feed()
    assert np.abs(outputs(model, feed)[0] - outputs(graph, feed)[0]).max() <= 2 * STEP


def test_concatenation_of_quantized_inputs() -> None:
    net = QuantizedNet("strip_QLinearConcat", [2, 3])
    other = net.constant(np.arange(6, dtype=np.int8).reshape(2, 3)), *net.parameters
    inputs = [*net.parameters, net.codes, *net.parameters, *other]
    model, graph = net.finish(net.node("QLinearConcat", *inputs, domain=MICROSOFT, axis=1), [2, 6])
    assert [node.op for node in graph.nodes()] == ["Concat"]
    feed = net.feed()
    assert np.abs(outputs(model, feed)[0] - outputs(graph, feed)[0]).max() <= STEP


@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize("to_float", [False, True])
def test_gemm_with_integer_bias(transposed: int, to_float: bool) -> None:
    net = QuantizedNet("strip_QGemm", [3, 8])
    weight = net.rng.integers(-127, 128, (5, 8) if transposed else (8, 5)).astype(np.int8)
    scales = net.rng.uniform(0.002, 0.004, 5).astype(np.float32)
    bias = net.constant(net.rng.integers(-5000, 5000, 5).astype(np.int32))
    zeros = net.constant(np.zeros(5, np.int8))
    inputs = [net.codes, *net.parameters, net.constant(weight), net.floats(scales), zeros, bias]
    attributes = {"transB": transposed, "alpha": 1.0}
    if to_float:
        net.output(net.node("QGemm", *inputs, domain=MICROSOFT, **attributes), [3, 5])
        model, graph = net.model(), Graph.from_model(net.model())
        assert strip(graph).left == ()
    else:
        model, graph = net.finish(net.node("QGemm", *inputs, *net.parameters, domain=MICROSOFT, **attributes), [3, 5])
    (gemm,) = graph.nodes()
    expected = weight.astype(np.float32) * (scales[:, None] if transposed else scales)
    assert np.array_equal(graph.values(gemm.inputs[1]), expected)
    feed = net.feed()
    assert nearness(model, graph, [feed]) > 25


def test_attention_keeps_its_heads() -> None:
    net = Net("strip_QAttention")
    net.domains[MICROSOFT] = 1
    x = net.input("x", [1, 4, 8])
    codes, scale, zero = net.many("DynamicQuantizeLinear", [x], ["codes", "scale", "zero"])
    weight = net.constant(net.rng.integers(-127, 128, (8, 24)).astype(np.int8))
    inputs = [codes, weight, net.bias(24), scale, net.floats(0.003), "", zero, net.constant(np.int8(0))]
    net.output(net.node("QAttention", *inputs, domain=MICROSOFT, num_heads=2), [1, 4, 8])
    graph = Graph.from_model(net.model())
    assert strip(graph).left == ()
    assert [node.op for node in graph.nodes()] == ["Attention"]
    feed = {"x": net.rng.normal(0, 1, (1, 4, 8)).astype(np.float32)}
    assert nearness(net.model(), graph, [feed]) > 30


@pytest.mark.parametrize(("bits", "with_zeros"), [(4, False), (4, True), (8, True), (2, False)])
def test_weights_of_few_bits_in_blocks(bits: int, with_zeros: bool) -> None:
    net = Net(f"strip_nbits_{bits}")
    net.domains[MICROSOFT] = 1
    rows, features, size = 6, 40, 16  # the last block is not full
    packed = net.rng.integers(0, 256, (rows, 3, size * bits // 8)).astype(np.uint8)
    scales = net.floats(net.rng.uniform(0.01, 0.1, (rows, 3)))
    zeros = net.rng.integers(0, 256, (rows, -(-3 * bits // 8))).astype(np.uint8)
    inputs = [
        net.input("x", [2, features]),
        net.constant(packed),
        scales,
        *([net.constant(zeros)] if with_zeros else []),
    ]
    y = net.node("MatMulNBits", *inputs, domain=MICROSOFT, K=features, N=rows, bits=bits, block_size=size)
    net.output(y, [2, rows])
    graph = Graph.from_model(net.model())
    assert strip(graph).left == ()
    assert [node.op for node in graph.nodes()] == ["MatMul"]
    feed = {"x": net.rng.normal(0, 1, (2, features)).astype(np.float32)}
    assert nearness(net.model(), graph, [feed]) > 100


@pytest.mark.parametrize("bits", [4, 8])
def test_a_table_of_few_bits_in_blocks(bits: int) -> None:
    net = Net(f"strip_gather_blocks_{bits}")
    net.domains[MICROSOFT] = 1
    table = net.constant(net.rng.integers(0, 256, (10, 32 * bits // 8)).astype(np.uint8))
    scales = net.floats(net.rng.uniform(0.01, 0.1, (10, 2)))
    rows = net.input("rows", [3], np.int64)
    attributes = {"bits": bits, "block_size": 16, "quantize_axis": 1, "gather_axis": 0}
    net.output(net.node("GatherBlockQuantized", table, rows, scales, domain=MICROSOFT, **attributes), [3, 32])
    graph = Graph.from_model(net.model())
    assert strip(graph).left == ()
    feed = {"rows": np.array([0, 9, 4])}
    assert np.array_equal(outputs(net.model(), feed)[0], outputs(graph, feed)[0])


def test_numbers_that_are_padded_with_are_real_ones() -> None:
    net = QuantizedNet("strip_Pad", [1, 3])
    codes = net.node("Pad", net.codes, net.ints(0, 1, 0, 1))
    model, graph = net.finish(codes, [1, 5])
    feed = net.feed()
    assert outputs(graph, feed)[0][0, 0] == pytest.approx(-3 * STEP)
    assert np.abs(outputs(model, feed)[0] - outputs(graph, feed)[0]).max() <= STEP


def test_an_operator_with_inputs_of_another_one_stays_and_is_named() -> None:
    net = Net("strip_damaged")
    net.domains[MICROSOFT] = 1
    x = net.input("x", [2, 8])
    packed, scales = net.constant(np.zeros((4, 1, 8), np.uint8)), net.floats(np.ones((4, 2)))
    y = net.node("MatMulNBits", x, packed, scales, domain=MICROSOFT, name="misfit", K=8, N=4, block_size=16)
    net.output(net.node("DynamicQuantizeMatMul", y, domain=MICROSOFT, name="inputless"), [2, 4])
    reasons = {left.node: left.reason for left in strip(Graph.from_model(net.model())).left}
    assert "do not fit K=8" in reasons["misfit"]
    assert "inputs and attributes" in reasons["inputless"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"block_size": 0}, "block_size is 0"),
        ({"K": -1}, "K is -1"),
        ({"bits": 3}, "3 bits"),
    ],
)
def test_packed_weights_with_impossible_attributes_stay(changes: dict[str, int], reason: str) -> None:
    net = Net("strip_impossible")
    net.domains[MICROSOFT] = 1
    bits = changes.get("bits", 4)
    packed, scales = net.constant(np.zeros((4, 1, 16 * bits // 8), np.uint8)), net.floats(np.ones((4, 1)))
    attributes = {"K": 16, "N": 4, "block_size": 16, **changes}
    net.output(net.node("MatMulNBits", net.input("x", [2, 16]), packed, scales, domain=MICROSOFT, **attributes), [2, 4])
    (left,) = strip(Graph.from_model(net.model())).left
    assert reason in left.reason


def test_packed_weights_that_are_no_bytes_stay() -> None:
    net = Net("strip_no_bytes")
    net.domains[MICROSOFT] = 1
    inputs = [net.input("x", [2, 16]), net.floats(np.zeros((4, 1, 8))), net.floats(np.ones((4, 1)))]
    net.output(net.node("MatMulNBits", *inputs, domain=MICROSOFT, K=16, N=4, block_size=16), [2, 4])
    (left,) = strip(Graph.from_model(net.model())).left
    assert "packed numbers are uint8" in left.reason
