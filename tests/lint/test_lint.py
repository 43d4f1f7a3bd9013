"""The lint names each violation of a target's limits with its tensor, and passes a model that keeps to them."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.graph import Graph
from onnxq.lint.limits import lint
from onnxq.types import Backend, Limits, OpRule, QuantSpec, Scheme


def backend(**limits: object) -> Backend:
    wanted = {"dtypes": ("int8", "uint8"), **limits}
    scheme = Scheme(QuantSpec("int8"), QuantSpec("int8"))
    return Backend("chip", "a chip", scheme, (OpRule(("Conv",), weight=1, bias=2),), Limits(**wanted))  # type: ignore[arg-type]


def info(name: str, shape: list[int | None], dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def model(
    *,
    activation_scale: object = np.float32(0.1),
    activation_zero: object = np.int8(0),
    reader_scale: object = None,
    weight: np.ndarray | None = None,
    weight_scale: object = None,
    weight_zero: object = None,
    bias: bool = False,
    opset: int = 19,
) -> Graph:
    """x -> Q -> DQ -> Conv with an integer weight behind a DQ, and optionally an int32 bias."""
    weight = np.ones((3, 2, 1, 1), np.int8) if weight is None else weight
    weight_scale = np.full(3, 0.5, np.float32) if weight_scale is None else weight_scale
    weight_zero = np.zeros(3, weight.dtype) if weight_zero is None else weight_zero
    constants = {
        "xs": activation_scale,
        "xz": activation_zero,
        "xs2": activation_scale if reader_scale is None else reader_scale,
        "w": weight,
        "ws": weight_scale,
        "wz": weight_zero,
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"], name="quantize"),
        helper.make_node("DequantizeLinear", ["xq", "xs2", "xz"], ["xd"], name="dequantize"),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], name="weight", axis=0),
        helper.make_node("Conv", ["xd", "wd"] + ["bd"] * bias, ["y"], name="conv"),
    ]
    if bias:
        constants |= {"b": np.zeros(3, np.int32), "bs": np.full(3, 0.05, np.float32)}
        nodes.insert(3, helper.make_node("DequantizeLinear", ["b", "bs"], ["bd"], name="bias", axis=0))
    graph = helper.make_graph(
        nodes,
        "test",
        [info("x", [1, 2, 4, 4])],
        [info("y", [1, 3, 4, 4])],
        [numpy_helper.from_array(np.asarray(values), name) for name, values in constants.items()],
    )
    return Graph.from_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9))


def found(graph: Graph, target: Backend) -> list[tuple[str, str]]:
    return [(finding.rule, finding.tensor) for finding in lint(graph, target)]


def test_a_model_within_the_limits_has_no_findings() -> None:
    assert found(model(), backend()) == []
    assert found(model(bias=True), backend(dtypes=("int8", "int32"))) == []


def test_a_file_is_read_like_a_graph(tmp_path: Path) -> None:
    model(opset=13).save(tmp_path / "m.onnx")
    assert [finding.rule for finding in lint(tmp_path / "m.onnx", backend(min_opset=17))] == ["opset"]


@pytest.mark.parametrize(("limits", "allowed"), [({"min_opset": 20}, "20 or newer"), ({"max_opset": 17}, "10 to 17")])
def test_an_opset_outside_the_range_is_found(limits: dict[str, int], allowed: str) -> None:
    (finding,) = lint(model(), backend(**limits))
    assert finding.rule == "opset"
    assert allowed in str(finding)


def test_a_format_the_target_does_not_have_is_found_on_every_quantizer() -> None:
    assert found(model(activation_zero=np.uint8(3)), backend(dtypes=("int8",))) == [("dtype", "x"), ("dtype", "xq")]


def test_float8_has_one_name_in_limits_and_files() -> None:
    eight = np.dtype(ml_dtypes.float8_e4m3fn)
    graph = model(activation_zero=np.zeros((), eight), weight=np.ones((3, 2, 1, 1), eight))
    assert found(graph, backend(dtypes=("fp8_e4m3",))) == []
    assert found(graph, backend(dtypes=("float8e4m3fn",))) == []
    assert {rule for rule, _ in found(graph, backend(dtypes=("fp8_e5m2",)))} == {"dtype"}


def test_a_zero_point_other_than_zero_is_found_where_the_target_has_none() -> None:
    graph = model(activation_zero=np.uint8(3))
    assert found(graph, backend()) == []
    assert found(graph, backend(zero_point_zero=True)) == [("zero-point-zero", "x"), ("zero-point-zero", "xq")]


def test_a_zero_point_of_another_type_than_the_values_is_found() -> None:
    assert found(model(weight_zero=np.zeros(3, np.uint8)), backend()) == [("zero-point-type", "w")]


def test_several_scales_on_an_activation_are_found() -> None:
    many = model(activation_scale=np.full(2, 0.1, np.float32), activation_zero=np.zeros(2, np.int8))
    assert found(many, backend()) == [("activation-per-tensor", "x"), ("activation-per-tensor", "xq")]
    assert found(many, backend(activations_per_tensor=False)) == []


def test_float_weights_behind_a_pair_may_have_several_scales() -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["w", "s", "z"], ["q"], name="q", axis=0),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], name="d", axis=0),
        helper.make_node("Conv", ["x", "d"], ["y"], name="conv"),
    ]
    constants = {"w": np.ones((3, 2, 1, 1), np.float32), "s": np.ones(3, np.float32), "z": np.zeros(3, np.int8)}
    graph = helper.make_graph(
        nodes,
        "test",
        [info("x", [1, 2, 4, 4])],
        [info("y", [1, 3, 4, 4])],
        [numpy_helper.from_array(values, name) for name, values in constants.items()],
    )
    built = Graph.from_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9))
    assert found(built, backend()) == []


@pytest.mark.parametrize("scale", [0.0, -1.0, np.inf, np.nan])
def test_a_scale_that_is_not_above_zero_is_found(scale: float) -> None:
    rules = [rule for rule, _ in found(model(activation_scale=np.float32(scale)), backend())]
    assert rules.count("positive-scale") == 2


def test_a_scale_of_another_length_than_the_axis_is_found() -> None:
    graph = model(weight_scale=np.ones(2, np.float32), weight_zero=np.zeros(2, np.int8))
    assert found(graph, backend()) == [("scale-shape", "w")]


def test_a_quantized_bias_is_found_where_the_target_wants_float() -> None:
    graph = model(bias=True)
    rules = found(graph, backend(bias_quantized=False))
    assert ("float-bias", "b") in rules
    assert found(model(), backend(bias_quantized=False)) == []


def test_a_float_type_the_target_does_not_compute_in_is_found() -> None:
    graph = model(activation_scale=np.float16(0.1))
    assert ("float-type", "x") in found(graph, backend())
    assert ("float-type", "x") not in found(graph, backend(float_types=("float16", "float32")))


def test_a_pair_with_two_scales_is_found() -> None:
    assert found(model(reader_scale=np.float32(0.2)), backend()) == [("pair", "xq")]


def test_a_scale_computed_at_run_time_is_found() -> None:
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["s"], name="max", keepdims=0),
        helper.make_node("QuantizeLinear", ["x", "s"], ["q"], name="quantize"),
        helper.make_node("DequantizeLinear", ["q", "s"], ["y"], name="dequantize"),
    ]
    graph = helper.make_graph(nodes, "test", [info("x", [4])], [info("y", [4])])
    built = Graph.from_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    assert found(built, backend()) == [("constant-scale", "x"), ("constant-scale", "q")]
    assert found(built, backend(dtypes=("int8",)))[0] == ("dtype", "x")


def test_an_integer_operator_that_the_target_does_not_read_is_found() -> None:
    nodes = [helper.make_node("MatMulInteger", ["a", "b"], ["y"], name="product")]
    inputs = [info("a", [2, 3], TensorProto.UINT8), info("b", [3, 4], TensorProto.UINT8)]
    graph = helper.make_graph(nodes, "g", inputs, [info("y", [2, 4], TensorProto.INT32)])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    (finding,) = lint(Graph.from_model(made), backend(refused_operators=("MatMulInteger",)))
    assert finding.rule == "operator"
    assert finding.node == "product"
    assert "'y'" in finding.message
    assert lint(Graph.from_model(made), backend(refused_operators=())) == []


def test_stored_integers_beyond_those_of_the_target_are_found() -> None:
    weight = np.full((3, 2, 1, 1), -128, np.int8)
    (finding,) = lint(model(weight=weight), backend(steps=((-127, 127),)))
    assert finding.rule == "steps"
    assert "-128" in finding.message
    assert lint(model(weight=weight), backend(steps=((-128, 127),))) == []
