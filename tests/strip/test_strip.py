"""Quantization taken out of models that onnxruntime's tools and onnxq itself have quantized."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnxruntime.quantization import QuantFormat, QuantType

from onnxq.demo import load_data, model_path
from onnxq.graph import Graph
from onnxq.numerics import fake_quantize
from onnxq.quantize import quantize
from onnxq.strip import is_quantized, strip
from onnxq.targets import BACKENDS
from tests.strip.quantized_models import (
    conv_net,
    dense_net,
    dynamic,
    nearness,
    outputs,
    recurrent_net,
    static,
    stripped,
)
from tests.zoo_graphs.net import Net

QUANTIZATION_NOISE_DB = 20.0
"""8-bit rounding of a few layers stays above this; a lost Relu or a wrong weight does not."""


def operators(graph: Graph) -> list[str]:
    return [str(node.op) for node in graph.nodes()]


@pytest.mark.parametrize("form", [QuantFormat.QDQ, QuantFormat.QOperator])
@pytest.mark.parametrize("per_channel", [False, True])
def test_static_models_are_float_again(tmp_path: Path, form: QuantFormat, per_channel: bool) -> None:
    model, samples = conv_net()
    path = static(model, samples, tmp_path, form, per_channel=per_channel)
    graph, result = stripped(path)
    assert result.left == ()
    assert not any(map(is_quantized, operators(graph)))
    assert nearness(path, graph, samples) > QUANTIZATION_NOISE_DB
    assert nearness(model, graph, samples) > QUANTIZATION_NOISE_DB


def test_a_relu_that_saturation_stood_for_comes_back(tmp_path: Path) -> None:
    model, samples = conv_net()
    path = static(model, samples, tmp_path, QuantFormat.QDQ)
    assert "Relu" not in [node.op_type for node in onnx.load(path).graph.node]
    graph, result = stripped(path)
    assert sorted(result.restored.values()) == ["Relu", "Relu"]
    assert operators(graph).count("Relu") == 2


def test_a_relu6_comes_back_as_clip() -> None:
    net = Net("strip_relu6")
    scale, zero = net.floats(6 / 255), net.constant(np.uint8(0))
    y = net.conv(net.input("x", [1, 3, 8, 8]), 3, 4)
    net.output(net.node("DequantizeLinear", net.node("QuantizeLinear", y, scale, zero), scale, zero), [1, 4, 8, 8])
    model = net.model()
    graph = Graph.from_model(model)

    result = strip(graph)
    assert list(result.restored.values()) == ["Clip"]
    feed = {"x": np.random.default_rng(0).normal(0, 6, (1, 3, 8, 8)).astype(np.float32)}
    (float_values,), (quantized,) = outputs(graph, feed), outputs(model, feed)
    assert np.abs(float_values - quantized).max() <= 6 / 255  # half a step, and float rounding at its edge


def test_a_clip_to_other_bounds_comes_back_where_ranges_are_kept() -> None:
    net = Net("strip_ranges")
    scale, zero = net.floats(2 / 255), net.constant(np.int8(0))
    y = net.conv(net.input("x", [1, 3, 8, 8]), 3, 4)
    net.output(net.node("DequantizeLinear", net.node("QuantizeLinear", y, scale, zero), scale, zero), [1, 4, 8, 8])
    plain, kept = Graph.from_model(net.model()), Graph.from_model(net.model())
    assert strip(plain).restored == {}
    assert list(strip(kept, keep_ranges=True).restored.values()) == ["Clip"]
    feed = {"x": net.rng.normal(0, 3, (1, 3, 8, 8)).astype(np.float32)}
    quantized = outputs(net.model(), feed)[0]
    assert np.abs(outputs(kept, feed)[0] - quantized).max() <= 2 / 255
    assert np.abs(outputs(plain, feed)[0] - quantized).max() > 1


def test_a_gelu_that_rounds_to_zero_below_gets_no_relu() -> None:
    net = Net("strip_gelu")
    x = net.linear(net.input("x", [2, 16]), 16, 8)
    gate = net.node("Add", net.node("Erf", net.node("Div", x, net.floats(2**0.5))), net.floats(1.0))
    y = net.node("Mul", x, net.node("Mul", gate, net.floats(0.5)))
    scale, zero = net.floats(0.4), net.constant(np.uint8(0))
    net.output(net.node("DequantizeLinear", net.node("QuantizeLinear", y, scale, zero), scale, zero), [2, 8])
    graph = Graph.from_model(net.model())

    assert strip(graph).restored == {}
    assert "Relu" not in operators(graph)


@pytest.mark.parametrize("weight_type", [QuantType.QInt8, QuantType.QUInt8])
@pytest.mark.parametrize("per_channel", [False, True])
def test_dynamic_products_become_matmul_with_the_real_weights(
    tmp_path: Path, weight_type: QuantType, per_channel: bool
) -> None:
    model, samples = dense_net()
    path = dynamic(model, tmp_path, weight_type=weight_type, per_channel=per_channel)
    stored = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
    graph, result = stripped(path)
    assert result.left == ()
    assert result.before["DynamicQuantizeLinear"] == 2
    assert operators(graph).count("MatMul") == 2
    assert nearness(path, graph, samples) > QUANTIZATION_NOISE_DB
    for codes in (name for name in stored if name.endswith("_quantized")):
        base = codes.removesuffix("_quantized")
        steps = stored[codes].astype(np.float32) - stored[f"{base}_zero_point"].astype(np.float32)
        assert np.array_equal(graph.values(f"{codes}_float"), steps * stored[f"{base}_scale"])


@pytest.mark.parametrize("weight_type", [QuantType.QUInt8])
def test_dynamic_convolutions_become_conv(tmp_path: Path, weight_type: QuantType) -> None:
    model, samples = conv_net()
    path = dynamic(model, tmp_path, weight_type=weight_type)
    graph, result = stripped(path)
    assert "ConvInteger" in result.before
    assert result.left == ()
    assert operators(graph).count("Conv") == 2
    assert nearness(path, graph, samples) > QUANTIZATION_NOISE_DB


def test_a_bias_that_was_rounded_to_the_scale_of_the_sums_is_whole_again() -> None:
    net = Net("strip_bias_of_sums")
    x = net.input("x", [1, 2, 6, 6])
    codes, scale, zero = net.many("DynamicQuantizeLinear", [x], ["codes", "scale", "zero"])
    weight = net.rng.integers(0, 256, (4, 2, 3, 3)).astype(np.uint8)
    bias = net.bias(4)
    both = net.node("Mul", scale, net.floats(0.01))
    rounded = net.node("Cast", net.node("Floor", net.node("Div", bias, both)), to=onnx.TensorProto.INT32)
    sums = net.node(
        "ConvInteger", codes, net.constant(weight, "weight"), zero, net.constant(np.uint8(128)), pads=[1] * 4
    )
    sums = net.node("Add", sums, net.node("Reshape", rounded, net.ints(1, -1, 1, 1)))
    net.output(net.node("Mul", net.node("Cast", sums, to=onnx.TensorProto.FLOAT), both), [1, 4, 6, 6])
    model = net.model()

    graph = Graph.from_model(model)
    assert strip(graph).left == ()
    (conv,) = graph.nodes()
    assert [conv.op, conv.inputs[2].name] == ["Conv", bias]
    assert np.array_equal(graph.values(conv.inputs[1]), (weight.astype(np.float32) - 128) * np.float32(0.01))
    feed = {"x": net.rng.normal(0, 1, (1, 2, 6, 6)).astype(np.float32)}
    assert nearness(model, graph, [feed]) > QUANTIZATION_NOISE_DB


@pytest.mark.parametrize("per_channel", [False, True])
def test_a_dynamic_lstm_becomes_an_lstm_with_all_its_outputs(tmp_path: Path, per_channel: bool) -> None:
    model, samples = recurrent_net()
    path = dynamic(model, tmp_path, per_channel=per_channel)
    graph, result = stripped(path)
    assert result.before == {"DynamicQuantizeLSTM": 1}
    assert operators(graph) == ["LSTM"]
    assert graph.output_names == ["sequence", "last", "cell"]
    assert nearness(path, graph, samples) > QUANTIZATION_NOISE_DB


def test_fused_dynamic_operators_become_float(tmp_path: Path) -> None:
    net = Net("strip_fused_dynamic")
    x = net.input("x", [3, 16])
    codes, scale, zero = net.many("DynamicQuantizeLinear", [x], ["codes", "scale", "zero"])
    first = (
        net.constant(net.rng.integers(-63, 64, (16, 8)).astype(np.int8)),  # no kernel saturates on 7 bits
        net.floats(net.rng.uniform(0.01, 0.02, 8)),
    )
    y = net.node(
        "MatMulIntegerToFloat",
        *(codes, first[0], scale, first[1], zero, net.constant(np.zeros(8, np.int8)), net.bias(8)),
        domain="com.microsoft",
    )
    second = (
        net.constant(net.rng.integers(0, 256, (8, 4)).astype(np.uint8)),
        net.floats(0.01),
        net.constant(np.uint8(120)),
    )
    y = net.node("DynamicQuantizeMatMul", y, *second, net.bias(4), domain="com.microsoft")
    net.output(y, [3, 4])
    net.domains["com.microsoft"] = 1
    model = net.model()

    graph = Graph.from_model(model)
    assert strip(graph).left == ()
    assert operators(graph) == ["MatMul", "Add", "MatMul", "Add"]
    feed = {"x": net.rng.normal(0, 1, (3, 16)).astype(np.float32)}
    assert nearness(model, graph, [feed]) > QUANTIZATION_NOISE_DB


@pytest.mark.parametrize("target", ["onnxruntime", "tensorrt", "qnn", "weight_only", "weight_only:form=nbits"])
def test_weights_are_exactly_the_quantized_numbers(tmp_path: Path, target: str) -> None:
    model, samples = dense_net()
    written = quantize(model, backend=target, data=samples, out=tmp_path, config={"effort": 0})
    graph, result = stripped(written.model)
    assert result.left == ()
    assert not any(map(is_quantized, operators(graph)))
    assert nearness(written.model, graph, samples) > (100.0 if "weight_only" in target else QUANTIZATION_NOISE_DB)
    stored = Graph.from_model(model)
    held = [graph.values(constant) for constant in graph.constants()]
    weights = [placement.tensor for placement in written.plan if placement.role == "weight"]
    assert len(weights) == 2
    for name in weights:
        expected = fake_quantize(stored.values(name), written.qparams[name])
        assert any(np.array_equal(expected, values) for values in held)


@pytest.mark.slow
@pytest.mark.parametrize("target", sorted(name for name, _ in BACKENDS.items()))
def test_what_is_written_for_any_target_is_float_again(tmp_path: Path, target: str) -> None:
    samples = load_data().calibration[:16]
    settings = {"effort": 0, "minimum_sqnr_db": -100}
    written = quantize(model_path(), backend=target, data={"image": samples}, out=tmp_path, config=settings).model
    graph, result = stripped(written)
    assert result.left == ()
    assert not any(map(is_quantized, operators(graph)))
    feeds = [{"image": image[None]} for image in samples[:3]]
    assert nearness(written, graph, feeds) > QUANTIZATION_NOISE_DB
    assert nearness(model_path(), graph, feeds) > QUANTIZATION_NOISE_DB


def test_blocks_of_four_bits_become_float_weights(tmp_path: Path) -> None:
    net = Net("strip_int4", opset=21)
    x = net.input("x", [3, 32])

    codes = net.rng.integers(-8, 8, (32, 6)).astype(ml_dtypes.int4)
    scale = net.rng.uniform(0.01, 0.1, (2, 6)).astype(np.float32)
    weight = net.node("DequantizeLinear", net.constant(codes), net.floats(scale), axis=0, block_size=16)
    net.output(net.node("MatMul", x, weight), [3, 6])
    model = net.model()

    graph = Graph.from_model(model)
    assert strip(graph).left == ()
    (product,) = graph.nodes()
    assert np.array_equal(graph.values(product.inputs[1]), codes.astype(np.float32) * np.repeat(scale, 16, axis=0))


def test_a_table_that_is_looked_up_as_integers_becomes_float() -> None:
    net = Net("strip_lookup")
    rows = net.input("rows", [4], np.int64)
    table = net.rng.integers(0, 256, (10, 8)).astype(np.uint8)
    found = net.node("Gather", net.constant(table), rows, axis=0)
    net.output(net.node("DequantizeLinear", found, net.floats(0.1), net.constant(np.uint8(128))), [4, 8])
    model = net.model()

    graph = Graph.from_model(model)
    assert strip(graph).left == ()
    assert operators(graph) == ["Gather"]
    feed = {"rows": np.array([1, 9, 0, 4])}
    assert np.array_equal(outputs(graph, feed)[0], outputs(model, feed)[0])


def test_bodies_are_stripped_too() -> None:
    net = Net("strip_body")
    x, wanted = net.input("x", [2, 3]), net.input("wanted", [], np.bool_)
    codes, scale = net.constant(np.arange(-3, 3, dtype=np.int8).reshape(2, 3)), net.floats(0.5)
    branches = []
    for op in ("Add", "Sub"):
        body = net.branch(op)
        body.output(body.node(op, x, body.node("DequantizeLinear", codes, scale)), [2, 3])
        branches.append(body.graph())
    net.output(net.node("If", wanted, then_branch=branches[0], else_branch=branches[1]), [2, 3])
    model = net.model()

    graph = Graph.from_model(model)
    assert strip(graph).left == ()
    for choice in (True, False):
        feed = {"x": np.ones((2, 3), np.float32), "wanted": np.array(choice)}
        assert np.array_equal(outputs(graph, feed)[0], outputs(model, feed)[0])


def test_what_has_no_float_form_is_named_with_its_reason() -> None:
    net = Net("strip_left")
    x = net.input("x", [1, 4], np.uint8)
    scale, zero = net.floats(0.1), net.constant(np.uint8(3))
    y = net.node("DequantizeLinear", x, scale, zero, name="first")
    codes = net.node("QuantizeLinear", y, scale, zero, name="second")
    other = net.node("DequantizeLinear", codes, net.floats(0.2), zero, name="third")
    net.output(net.node("Relu", other), [1, 4])

    model = net.model()
    graph = Graph.from_model(model)
    left = {item.node: item.reason for item in strip(graph).left}
    assert "input of the model" in left["first"]
    assert "another scale" in left["third"]
    assert "'third'" in left["second"]
    feed = {"x": np.array([[0, 5, 9, 250]], np.uint8)}
    assert np.array_equal(outputs(graph, feed)[0], outputs(model, feed)[0])


def test_a_float_model_is_left_as_it_is() -> None:

    graph = Graph.from_model(conv_net()[0])
    nodes = [node.name for node in graph.nodes()]
    assert strip(graph).before == {}
    assert [node.name for node in graph.nodes()] == nodes
