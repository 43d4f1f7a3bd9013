"""Constants that are no numbers, inputs with defaults, retracted operators, outputs that are no tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxq
from onnxq.errors import ModelError, UnsupportedError
from onnxq.graph import Graph
from onnxq.passes import run_passes
from onnxq.verify import compare_layers

FLOAT = TensorProto.FLOAT
WEIGHT = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
FEEDS = [{"x": np.random.default_rng(number).normal(size=(4, 8)).astype(np.float32)} for number in range(2)]


def info(name: str, shape: tuple[int, ...] | None = (4, 8), dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def net(
    nodes: list[onnx.NodeProto],
    constants: dict[str, Any],
    *,
    inputs: tuple[onnx.ValueInfoProto, ...] = (),
    outputs: tuple[onnx.ValueInfoProto, ...] = (),
    opset: int = 17,
) -> onnx.ModelProto:
    tensors = [numpy_helper.from_array(np.asarray(values), name) for name, values in constants.items()]
    graph = helper.make_graph(nodes, "net", [info("x"), *inputs], list(outputs or [info("y")]), tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def quantized(model: onnx.ModelProto, backend: str, out: Path, feeds: Any = FEEDS) -> Any:
    return onnxq.quantize(model, backend=backend, data=feeds, out=out, config={"effort": 0})


@pytest.mark.parametrize("wrong", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("backend", ["onnxruntime", "tensorrt", "ryzenai", "qnn"])
def test_a_weight_that_is_no_number_is_refused_by_name(wrong: float, backend: str, tmp_path: Path) -> None:
    weight = WEIGHT.copy()
    weight[2, 3:5] = wrong
    nodes = [helper.make_node("Gemm", ["x", "w"], ["y"], name="layer")]
    with pytest.raises(ModelError, match=r"constant 'w', read by 'layer' \(Gemm\), holds 2 values .* index \(\d, \d\)"):
        quantized(net(nodes, {"w": weight}), backend, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_bias_of_minus_infinity_rules_a_class_out(tmp_path: Path) -> None:
    bias = np.zeros(8, np.float32)
    bias[3] = -np.inf
    nodes = [helper.make_node("MatMul", ["x", "w"], ["t"]), helper.make_node("Add", ["t", "b"], ["y"])]
    result = quantized(net(nodes, {"w": WEIGHT, "b": bias}), "onnxruntime", tmp_path / "out")
    assert result.report["sqnr_db"]["y"] > 30


def test_an_input_with_a_default_that_became_a_constant_is_reported(tmp_path: Path) -> None:
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["y"])]
    model = net(nodes, {"w": WEIGHT, "b": np.ones(8, np.float32)}, inputs=(info("b", (8,)),))
    for backend, survives in (("onnxruntime", False), ("ryzenai", False), ("qnn", False), ("tensorrt", True)):
        result = quantized(model, backend, tmp_path / backend)
        names = [entry.name for entry in onnx.load(result.model).graph.input]
        told = [line for line in result.report["warnings"] if "'b': an input with a default value" in line]
        assert (names == ["x", "b"], len(told)) == (survives, 0 if survives else 1), backend


def test_initializers_that_old_files_must_list_as_inputs_are_no_inputs(tmp_path: Path) -> None:
    model = net([helper.make_node("Gemm", ["x", "w"], ["y"])], {"w": WEIGHT}, inputs=(info("w", (8, 8)),), opset=11)
    model.ir_version = 3
    assert not any("default" in line for line in quantized(model, "onnxruntime", tmp_path / "out").report["warnings"])


@pytest.mark.parametrize("opset", [18, 20])
def test_group_normalization_of_opset_18(opset: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["t"]),
        helper.make_node("GroupNormalization", ["t", "s", "b"], ["y"], num_groups=2),
    ]
    constants = {
        "w": rng.normal(size=(4, 3, 3, 3)).astype(np.float32),
        "s": np.float32([1, 2]),
        "b": np.float32([3, 4]),
    }
    model = net(nodes, constants, outputs=(info("y", (1, 4, 6, 6)),), opset=opset)
    model.graph.input[0].CopyFrom(info("x", (1, 3, 8, 8)))
    feeds = [{"x": rng.normal(size=(1, 3, 8, 8)).astype(np.float32)} for _ in range(2)]
    result = quantized(model, "onnxruntime", tmp_path / "out", feeds)
    assert result.report["sqnr_db"]["y"] > 30
    assert not list((tmp_path / "out").glob(".*"))


def test_a_sequence_as_an_output_is_left_out_of_comparisons(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("SequenceConstruct", ["y", "y"], ["s"])]
    sequence = helper.make_tensor_sequence_value_info("s", FLOAT, None)
    model = net(nodes, {"w": WEIGHT}, outputs=(info("y"), sequence))
    result = quantized(model, "onnxruntime", tmp_path / "out")
    assert any("'s' was not compared: it is not a tensor" in line for line in result.report["warnings"])
    layers = compare_layers(Graph.from_model(model), result.model, FEEDS)
    assert [layer.tensor for layer in layers] == ["y"]


def test_training_needs_tensors(tmp_path: Path) -> None:
    from onnxq.qat import prepare

    nodes = [helper.make_node("MatMul", ["x", "w"], ["t"]), helper.make_node("SequenceConstruct", ["t", "t"], ["s"])]
    model = net(nodes, {"w": WEIGHT}, outputs=(helper.make_tensor_sequence_value_info("s", FLOAT, None),))
    with pytest.raises(UnsupportedError, match="output 's' of the model is a sequence"):
        prepare(model, "academic", FEEDS)


def test_an_input_of_a_size_that_no_array_has(tmp_path: Path) -> None:
    model = net([helper.make_node("Relu", ["x"], ["y"])], {}, outputs=(info("y", (2**62, 8)),))
    model.graph.input[0].CopyFrom(info("x", (2**62, 8)))
    with pytest.raises(ModelError, match=r"'x' has the shape .* which no array can have"):
        quantized(model, "onnxruntime", tmp_path / "out")


BIG = {
    "Range": ({"a": np.int64(0), "b": np.int64(2**62), "c": np.int64(1)}, {}),
    "Tile": ({"a": np.int64([1]), "b": np.int64([2**42])}, {}),
    "Pad": ({"a": np.float32([1]), "b": np.int64([0, 2**42])}, {}),
    "HannWindow": ({"a": np.int64(2**40)}, {}),
    "Expand": ({"a": np.int64([1]), "b": np.int64([2**42])}, {}),
    "OneHot": ({"a": np.int64([1]), "b": np.int64(2**42), "c": np.float32([0, 1])}, {}),
    "Resize": ({"a": np.ones((1, 1, 2, 2), np.float32), "_1": "", "_2": "", "b": np.int64([1, 1, 2**20, 2**20])}, {}),
}
"""Operators of which a few numbers make terabytes."""


@pytest.mark.parametrize("op", sorted(BIG))
def test_terabytes_are_not_folded_into_constants(op: str) -> None:
    given, attributes = BIG[op]
    inputs = ["" if name.startswith("_") else name for name in given]
    constants = {name: values for name, values in given.items() if not name.startswith("_")}
    nodes = [
        helper.make_node(op, inputs, ["big"], name="huge", **attributes),
        helper.make_node("Cast", ["big"], ["z"], to=FLOAT),
        helper.make_node("Relu", ["x"], ["y"]),
    ]
    graph = Graph.from_model(net(nodes, constants, outputs=(info("y"), info("z", None))))
    graph.infer_shapes()
    (report,) = run_passes(graph, ["fold_constants"])
    assert any("'huge'" in line and "bytes" in line for line in report.declined), report.declined
