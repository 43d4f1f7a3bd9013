"""QLinear models compute what the Q/DQ form of the same plan computes in onnxruntime's integer kernels."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxq
from onnxq.emit import EMITTERS, EmitRequest
from onnxq.session.prepare import make_plan, prepare
from onnxq.targets import get_backend
from onnxq.types import QParams, QParamsTable, QuantPlan
from tests.golden_graphs import GOLDEN, Samples

Outputs = list[dict[str, np.ndarray]]


def run(path: Path, samples: Samples, *, optimize: bool) -> Outputs:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimize else level.ORT_DISABLE_ALL
    session = ort.InferenceSession(str(path), options)
    names = [output.name for output in session.get_outputs()]
    return [dict(zip(names, session.run(names, sample), strict=True)) for sample in samples]


def operators(graph: onnx.GraphProto) -> Counter[str]:
    found: Counter[str] = Counter()
    for node in graph.node:
        found[node.op_type] += 1
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found += operators(attribute.g)
    return found


def quantized(name: str, backend: str, folder: Path) -> tuple[Path, Path, Samples]:
    """The QLinear model of a golden graph, the Q/DQ model of the same plan and parameters, and the samples."""
    golden = GOLDEN[name]()
    target = get_backend(backend)
    result = onnxq.quantize(golden.model, backend=backend, data=golden.samples, out=folder, config={"effort": 0})
    graph = prepare(golden.model, target).graph
    (twin,) = EMITTERS.get("qdq")(EmitRequest(graph, result.plan, result.qparams, target, folder, "twin")).files
    return result.model, twin, golden.samples


CASES = [(name, backend) for name in GOLDEN for backend in ("onnx_qnn", "onnx_qnn:weights=int7,gemm=yes")]


@pytest.mark.parametrize(("name", "backend"), CASES)
def test_outputs_are_those_of_the_fused_qdq_model(name: str, backend: str, tmp_path: Path) -> None:
    model, twin, samples = quantized(name, backend, tmp_path)
    mine, theirs = run(model, samples, optimize=False), run(twin, samples, optimize=True)
    for one, other in zip(mine, theirs, strict=True):
        for output in one:
            np.testing.assert_array_equal(one[output], other[output], err_msg="the kernels are the same ones")


@pytest.mark.parametrize("name", list(GOLDEN))
def test_outputs_are_close_to_the_qdq_model_node_by_node(name: str, tmp_path: Path) -> None:
    model, twin, samples = quantized(name, "onnx_qnn", tmp_path)
    mine, theirs = run(model, samples, optimize=False), run(twin, samples, optimize=False)
    for output in mine[0]:
        made = np.stack([entry[output] for entry in mine]).astype(np.float64)
        wanted = np.stack([entry[output] for entry in theirs])
        noise = np.sum((made - wanted) ** 2)
        # Integer kernels scale once, with one rounding, where the other form rounds each product in float.
        assert noise == 0 or 10 * np.log10(np.sum(wanted.astype(np.float64) ** 2) / noise) > 38


def test_every_layer_of_a_convolutional_network_is_an_integer_operator(tmp_path: Path) -> None:
    found = Counter(operators(onnx.load(quantized("residual", "onnx_qnn", tmp_path)[0]).graph))
    assert found["QLinearConv"] == 6
    assert found["QLinearAdd"] == 2
    assert found["QLinearGlobalAveragePool"] == 1
    assert found["QuantizeLinear"] == 1, "the image"
    assert found["DequantizeLinear"] == 1, "in front of the float classifier"
    assert found["Gemm"] == 1
    assert not found["Conv"] + found["Relu"] + found["Add"]


def test_operators_that_move_values_move_integers(tmp_path: Path) -> None:
    found = operators(onnx.load(quantized("concat", "onnx_qnn", tmp_path)[0]).graph)
    assert found["QLinearConcat"] == found["MaxPool"] == found["Slice"] == found["Resize"] == 1
    assert found["QuantizeLinear"] == found["DequantizeLinear"] == 1, "only at input and output"


def test_bodies_have_integer_operators_too(tmp_path: Path) -> None:
    path = quantized("if_body", "onnx_qnn", tmp_path)[0]
    found = operators(onnx.load(path).graph)
    assert found["QLinearConv"] == 5
    assert not found["Conv"]


def test_the_option_makes_gemm_an_integer_operator(tmp_path: Path) -> None:
    found = operators(onnx.load(quantized("residual", "onnx_qnn:gemm=yes,weights=int7", tmp_path)[0]).graph)
    assert found["QGemm"] == 1
    assert not found["Gemm"]


def one_conv() -> tuple[onnx.ModelProto, np.ndarray, np.ndarray]:
    random = np.random.default_rng(5)
    weight = random.normal(0, 0.3, (4, 3, 1, 1)).astype(np.float32)
    bias = np.asarray([0.26, -0.26, 1.9, -1.9], np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv"), helper.make_node("Relu", ["c"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 4, 4])],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(bias, "b")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), weight, bias


def parameters(plan: QuantPlan, scales: dict[str, tuple[float, int]]) -> QParamsTable:
    table = QParamsTable()
    for placement in plan:
        scale, zero_point = scales[placement.tensor]
        table.put(placement.tensor, QParams(placement.spec, np.float32(scale), np.int32(zero_point)), "test")
    return table


def test_a_convolution_computes_what_its_integers_say(tmp_path: Path) -> None:
    """Weights, rounded biases and results against the formula of QLinearConv in numpy."""
    model, weight, bias = one_conv()
    target = get_backend("onnx_qnn")
    prepared = prepare(model, target)
    plan = make_plan(prepared)
    scales = {"x": (0.02, 100), "w": (0.01, 128), "b": (0.02 * 0.01, 0), "y": (0.015, 0)}
    table = parameters(plan, scales)
    (path,) = EMITTERS.get("qlinear")(EmitRequest(prepared.graph, plan, table, target, tmp_path, "model")).files
    written = onnx.load(path)
    values = {item.name: numpy_helper.to_array(item) for item in written.graph.initializer}
    (node,) = [item for item in written.graph.node if item.op_type == "QLinearConv"]
    stored_weight, stored_bias = values[node.input[3]], values[node.input[8]]
    assert stored_weight.dtype == np.uint8
    np.testing.assert_array_equal(stored_weight, np.clip(np.rint(weight / np.float32(0.01)) + 128, 0, 255))
    np.testing.assert_array_equal(stored_bias, np.rint(bias.astype(np.float64) / (0.02 * 0.01)))
    x = np.random.default_rng(6).uniform(-2, 3, (1, 3, 4, 4)).astype(np.float32)
    (result,) = run(path, [{"x": x}], optimize=False)
    codes = np.clip(np.rint(x / np.float32(0.02)) + 100, 0, 255).astype(np.int64) - 100
    sums = np.einsum("nchw,oc->nohw", codes, stored_weight[:, :, 0, 0].astype(np.int64) - 128)
    sums += stored_bias.astype(np.int64)[:, None, None]
    wanted = np.clip(np.rint(sums * (0.02 * 0.01 / 0.015)), 0, 255)
    got = np.rint(result["y"] / np.float32(0.015))
    assert np.abs(got - wanted).max() <= 1, "a product that ends on one half may go either way"
    assert np.mean(got == wanted) > 0.95


def test_a_layer_with_a_float_reader_keeps_its_pair_and_says_so(tmp_path: Path) -> None:
    """A Sigmoid between Conv and quantizer has no integer form here: nothing may be lost around it."""
    model, _, _ = one_conv()
    model.graph.node[1].op_type = "Sigmoid"
    samples = [{"x": np.random.default_rng(i).normal(0, 1, (1, 3, 4, 4)).astype(np.float32)} for i in range(4)]
    result = onnxq.quantize(model, backend="onnx_qnn", data=samples, out=tmp_path, config={"effort": 0})
    found = operators(onnx.load(result.model).graph)
    assert found["QLinearConv"] == found["Sigmoid"] == found["DequantizeLinear"] == 1
