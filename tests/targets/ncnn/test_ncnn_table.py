"""ncnn's calibration table: 1 / step of inputs and weights, six bits for Winograd, no name it cannot read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from onnxq.errors import UnsupportedError
from onnxq.numerics import quantize as to_integers
from tests.formats.ncnn import calibration_table
from tests.formats.written import write_golden, write_model

RANDOM = np.random.default_rng(4)


def convolution(
    *, name: str = "conv", groups: int = 1, out: int = 8, kernel: int = 3, stride: int = 1, factor: float = 1.0
) -> onnx.ModelProto:
    weight = (RANDOM.normal(0, 1, (out, 8 // groups, kernel, kernel)) * factor).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], name=name, group=groups, strides=[stride, stride])],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 8, 8, 8])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weight, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def samples(factor: float = 1.0) -> list[dict[str, np.ndarray]]:
    return [{"x": (RANDOM.normal(0, 1, (1, 8, 8, 8)) * factor).astype(np.float32)} for _ in range(4)]


def absmax(model: onnx.ModelProto, rows: int) -> np.ndarray:
    return np.abs(numpy_helper.to_array(model.graph.initializer[0]).reshape(rows, -1)).max(axis=1)


@pytest.mark.parametrize("name", ["residual", "depthwise", "concat", "transformer", "detector"])
def test_every_quantized_layer_has_both_lines(name: str, tmp_path: Path) -> None:
    written = write_golden(name, "ncnn", tmp_path / "out")
    inputs, weights = calibration_table(tmp_path / "out" / "model.table")
    layers = [
        n for n in written.graph.nodes() if n.op in ("Conv", "Gemm", "MatMul") and n.name in written.plan.quantized
    ]
    assert {node.name for node in layers} == set(inputs)
    for node in layers:
        np.testing.assert_allclose(inputs[node.name], 1 / written.qparams[node.inputs[0].name].scale, rtol=1e-6)
        np.testing.assert_allclose(weights[node.name], 1 / written.qparams[node.inputs[1].name].scale, rtol=1e-6)
    assert written.problems() == []


@pytest.mark.parametrize(
    ("backend", "kernel", "stride", "steps"),
    [("ncnn", 3, 1, 31), ("ncnn", 3, 2, 127), ("ncnn", 1, 1, 127), ("ncnn:winograd=off", 3, 1, 127)],
)
def test_weights_for_winograd_kernels_have_six_bits(
    backend: str, kernel: int, stride: int, steps: int, tmp_path: Path
) -> None:
    model = convolution(kernel=kernel, stride=stride)
    written = write_model(model, samples(), backend, tmp_path / "out")
    _, weights = calibration_table(tmp_path / "out" / "model.table")
    np.testing.assert_allclose(weights["conv"], steps / absmax(model, 8), rtol=1e-6)
    assert np.abs(to_integers(written.graph.values("w"), written.qparams["w"]).astype(int)).max() == steps
    assert any("6 bits" in note for note in written.notes) == (steps == 31)


@pytest.mark.parametrize(("groups", "out", "scales"), [(8, 8, 8), (2, 8, 2), (8, 16, 8)])
def test_grouped_convolutions_have_one_scale_for_each_group(groups: int, out: int, scales: int, tmp_path: Path) -> None:
    model = convolution(groups=groups, out=out)
    write_model(model, samples(), "ncnn", tmp_path / "out")
    _, weights = calibration_table(tmp_path / "out" / "model.table")
    assert weights["conv"].size == scales
    by_group = 127 / absmax(model, groups)
    expected = by_group if groups == out else np.full(groups, by_group.min())
    np.testing.assert_allclose(weights["conv"], expected, rtol=1e-6)


@pytest.mark.parametrize("factor", [1e-6, 1e5])
def test_tiny_and_large_scales_keep_their_digits(factor: float, tmp_path: Path) -> None:
    written = write_model(convolution(kernel=1, factor=factor), samples(1 / factor), "ncnn", tmp_path / "out")
    inputs, weights = calibration_table(tmp_path / "out" / "model.table")
    np.testing.assert_allclose(inputs["conv"], 1 / written.qparams["x"].scale, rtol=2e-7)
    np.testing.assert_allclose(weights["conv"], 1 / written.qparams["w"].scale, rtol=2e-7)


@pytest.mark.parametrize("name", ["a conv", "conv_param_x", "c" * 250])
def test_a_name_that_the_reader_would_misread_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="rename it in the model"):
        write_model(convolution(name=name), samples(), "ncnn", tmp_path / "out")


def test_the_read_back_finds_a_changed_scale_an_empty_line_and_a_missing_layer(tmp_path: Path) -> None:
    written = write_model(convolution(), samples(), "ncnn", tmp_path / "out")
    text = (tmp_path / "out" / "model.table").read_text()
    last = text.splitlines()[-1]
    for changed in (last.replace(" ", " 1"), "", "conv one"):
        written.change("model.table", last, changed)
        assert written.problems()
        (tmp_path / "out" / "model.table").write_text(text)
    assert written.problems() == []
