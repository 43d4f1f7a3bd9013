"""Costs: exact bytes, MACs and bit operations, by hand for a small net and as they stand in a written file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import onnxq
from onnxq.config import read_config
from onnxq.costs import Costs, count, products, weight_bytes, weights_of
from onnxq.demo import load_data, model_path
from onnxq.errors import ConfigError
from onnxq.graph import Graph
from onnxq.mixed_precision.budget import read_budget
from onnxq.session.prepare import make_plan, prepare
from onnxq.types import PerBlock, PerChannel, QuantSpec
from tests.zoo_graphs.net import Net


def small_net(batch: int | str) -> onnx.ModelProto:
    """Conv 3x3, depthwise Conv, ConvTranspose, a MatMul of two computed tensors, Gemm with transB."""
    net = Net("costs")
    x = net.input("x", (batch, 2, 6, 6))
    net.node("Conv", x, net.floats(np.ones((4, 2, 3, 3)), "a"), output="conv", pads=[1, 1, 1, 1])
    net.node("Conv", "conv", net.floats(np.ones((4, 1, 3, 3)), "b"), output="deep", group=4, strides=[2, 2])
    net.node("ConvTranspose", "deep", net.floats(np.ones((4, 3, 2, 2)), "c"), output="up", strides=[2, 2])
    net.node("MatMul", "up", "up", output="square")  # [n, 3, 4, 4] x [n, 3, 4, 4]
    net.node("Flatten", "square", output="flat")
    net.node("Gemm", "flat", net.floats(np.ones((5, 48)), "d"), output="y", transB=1)
    net.output("y", (batch, 5))
    return net.model()


# by hand: numbers of the result (of the input, for ConvTranspose) times the length of each sum
MACS = {
    "a": 4 * 6 * 6 * 2 * 9,
    "b": 4 * 2 * 2 * 9,
    "c": 4 * 2 * 2 * 3 * 4,
    "up": 3 * 4 * 4 * 4,
    "d": 5 * 48,
}


@pytest.mark.parametrize("batch", [1, "n"])
def test_multiplications_are_those_of_a_run_with_one_sample(batch: int | str) -> None:
    graph = Graph.from_model(small_net(batch))
    graph.infer_shapes()
    found = products(graph, {"x": np.zeros((1, 2, 6, 6), np.float32)})
    assert {product.operands[1]: product.macs for product in found} == MACS


def test_a_run_with_more_samples_multiplies_more() -> None:
    graph = Graph.from_model(small_net("n"))
    found = products(graph, {"x": np.zeros((3, 2, 6, 6), np.float32)})
    assert {product.operands[1]: product.macs for product in found} == {name: 3 * macs for name, macs in MACS.items()}


def test_bytes_and_bit_operations_of_a_plan_by_hand() -> None:
    config = read_config({"node": {"conv_node": {"weight": {"bits": 4}}}, "skip": ["op:ConvTranspose"]})
    model = small_net(1)
    model.graph.node[0].name = "conv_node"
    prepared = prepare(model, "onnxruntime", config)
    plan = make_plan(prepared)
    graph = prepared.graph
    found = products(graph, {"x": np.zeros((1, 2, 6, 6), np.float32)})
    weights = weights_of(graph, plan, found)
    costs = count(graph, plan, found, weights)
    assert set(weights) == {"a", "b", "c", "d"}
    # 72 int4, 36 int8 and 240 int8 with a float32 scale for each channel; 48 float32
    assert costs.bytes == (36 + 4 * 4) + (36 + 4 * 4) + 48 * 4 + (240 + 5 * 4)
    assert costs.numbers == 72 + 36 + 48 + 240
    assert costs.bits == 72 * 4 + 36 * 8 + 48 * 32 + 240 * 8
    assert costs.mean_bits == costs.bits / costs.numbers
    assert costs.macs == sum(MACS.values())
    assert costs.bit_operations == (
        MACS["a"] * 8 * 4 + MACS["b"] * 8 * 8 + MACS["c"] * 32 * 32 + MACS["up"] * 8 * 8 + MACS["d"] * 8 * 8
    )


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (None, 3 * 5 * 4),
        (QuantSpec("int8"), 15 + 4),
        (QuantSpec("int4"), 8 + 4),  # 15 halves of bytes
        (QuantSpec("int3"), 8 + 4),  # in the type of four bits
        (QuantSpec("int2"), 4 + 4),
        (QuantSpec("uint4", symmetric=False, granularity=PerChannel(0)), 8 + 3 * 4 + 2),
        (QuantSpec("int8", granularity=PerBlock(1, 2)), 15 + 3 * 3 * 4),
        (QuantSpec("fp8_e4m3"), 15 + 4),
        (QuantSpec("bf16"), 30),
    ],
    ids=str,
)
def test_bytes_of_a_format(spec: QuantSpec | None, expected: int) -> None:
    net = Net("bytes")
    net.node("MatMul", net.input("x", (1, 3)), net.floats(np.ones((3, 5)), "w"), output="y")
    net.output("y", (1, 5))
    assert weight_bytes(Graph.from_model(net.model()), "w", spec) == expected


def test_bytes_are_those_of_the_written_file(tmp_path: Path) -> None:
    """Weights and their scales, found in the file by what the DequantizeLinear of each weight reads."""
    config = {"node": {"head.conv": {"weight": {"bits": 4}}, "classifier": {"weight": {"bits": 16}}}, "effort": 0}
    onnxq.quantize(model_path(), backend="onnxruntime", data=load_data().calibration[:4], config=config, out=tmp_path)
    written = onnx.load(tmp_path / "model.onnx")
    stored = {tensor.name: tensor for tensor in written.graph.initializer}
    size = 0
    for node in written.graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in stored and len(stored[node.input[0]].dims) > 1:
            size += sum(len(stored[name].raw_data) for name in node.input[:2])
    prepared = prepare(model_path(), "onnxruntime", config)
    plan = make_plan(prepared)
    found = products(prepared.graph, {"image": load_data().calibration[:1]})
    assert count(prepared.graph, plan, found, weights_of(prepared.graph, plan, found)).bytes == size


COSTS = Costs(bytes=1000, bits=4000, numbers=500, bit_operations=10**9, macs=10**7)


@pytest.mark.parametrize(
    ("text", "measure", "limit"),
    [
        ("60%", "bytes", 600),
        ("12.5 %", "bytes", 125),
        ("100%", "bytes", 1000),
        ("800", "bytes", 800),
        ("1.5MB", "bytes", 1572864),
        ("3.5bits", "bits", 1750),
        ("4 bits", "bits", 2000),
        ("BOPS:25%", "bit_operations", 250_000_000),
        ("bops:1.5G", "bit_operations", 1_500_000_000),
        ("BOPS:1000", "bit_operations", 1000),
    ],
)
def test_a_budget_is_read(text: str, measure: str, limit: int) -> None:
    budget = read_budget(text)
    assert (budget.measure, budget.limit(COSTS)) == (measure, limit)


@pytest.mark.parametrize("text", ["", "0%", "120%", "-5%", "half", "4 bytes of", "BOPS:", "BOPS:many", "0bits", "nan"])
def test_a_budget_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read. Write 60% .*3\.5bits.*BOPS:60%"):
        read_budget(text)


def test_a_budget_that_is_no_text_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"budget 0\.7 is no text. Write 60%"):
        read_budget(0.7)
