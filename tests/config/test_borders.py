"""Inputs with fixed shapes and values, and extra outputs: in the written model, and in what it is compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import onnxq
from onnxq.errors import ConfigError
from onnxq.graph import Graph
from onnxq.session.prepare import prepare
from tests.networks.exported import exported, samples

NETWORK = exported("resnet_torchscript")


def two_inputs() -> onnx.ModelProto:
    text = """<ir_version: 9, opset_import: ["" : 17]>
        g (float[n,4,8,8] x, float gain, bool[1] flag) => (float[n,4,8,8] y)
        <float[4,4,1,1] w = {1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1}> {
        a = Conv (x, w)
        b = Mul (a, gain)
        c = Relu (b)
        y = Where (flag, b, c)
    }"""
    return onnx.parser.parse_model(text)


def test_a_fixed_shape_is_in_the_written_model_and_in_what_shares_its_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "calib.npz", **samples("resnet_torchscript", 4))
    config = {"inputs": {"image": {"shape": [1, 3, 32, 32]}}, "minimum_sqnr_db": 0.0, "effort": 0}
    result = onnxq.quantize(NETWORK, backend="tensorrt", data=tmp_path / "calib.npz", config=config, out=tmp_path / "o")
    written = onnx.load(result.model).graph
    assert [dim.dim_value for dim in written.input[0].type.tensor_type.shape.dim] == [1, 3, 32, 32]
    assert written.output[0].type.tensor_type.shape.dim[0].dim_value == 1


def test_an_input_with_a_value_is_a_constant(tmp_path: Path) -> None:
    config = {"inputs": {"gain": {"value": 2.0}, "flag": {"value": [True]}}}
    feeds = [{"x": np.random.default_rng(i).normal(size=(1, 4, 8, 8)).astype(np.float32)} for i in range(3)]
    result = onnxq.quantize(two_inputs(), backend="tensorrt", data=feeds, config=config, out=tmp_path / "o")
    session = ort.InferenceSession(result.model)
    assert [item.name for item in session.get_inputs()] == ["x"]
    (made,) = session.run(None, feeds[0])
    assert np.abs(made - 2 * feeds[0]["x"]).max() < 0.1


def test_an_extra_output_is_returned_and_compared(tmp_path: Path) -> None:
    np.savez(tmp_path / "calib.npz", **samples("resnet_torchscript", 4))
    inner = Graph.load(NETWORK).nodes("Sigmoid")[0].outputs[0].name
    config = {"extra_outputs": [inner], "minimum_sqnr_db": 0.0, "effort": 0}
    result = onnxq.quantize(NETWORK, backend="tensorrt", data=tmp_path / "calib.npz", config=config, out=tmp_path / "o")
    assert inner in result.report["sqnr_db"]
    assert inner in [item.name for item in ort.InferenceSession(result.model).get_outputs()]


def test_preparing_twice_changes_nothing_more() -> None:
    config = {"inputs": {"gain": {"value": 2.0}, "flag": {"value": [True]}}, "extra_outputs": ["b"]}
    once = prepare(Graph.from_model(two_inputs()), "tensorrt", config).graph
    twice = prepare(once.copy(), "tensorrt", config).graph
    assert twice.output_names == once.output_names == ["y", "b"]
    assert twice.input_names == ["x"]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "unknown input": ({"inputs": {"gian": {"value": 1}}}, "no input 'gian'.*Did you mean 'gain'"),
    "rank": ({"inputs": {"x": {"shape": [1, 4]}}}, "has 4 dimensions"),
    "size": ({"inputs": {"x": {"shape": [1, 5, 8, 8]}}}, "has size 4 in dimension 1, not 5"),
    "zero": ({"inputs": {"x": {"shape": [0, 4, 8, 8]}}}, "at least 1"),
    "value shape": ({"inputs": {"flag": {"value": [True, False]}}}, r"has shape \[1\], its value has \[2\]"),
    "value kind": ({"inputs": {"gain": {"value": "much"}}}, "cannot have this value"),
    "both": ({"inputs": {"gain": {"value": 1.0, "shape": []}}}, "a value and a shape"),
    "unknown tensor": ({"extra_outputs": ["bb"]}, "'bb' matches no tensor.*Did you mean 'b'"),
    "constant": ({"extra_outputs": ["w"]}, "'w' is a constant"),
}


@pytest.mark.parametrize(("config", "message"), WRONG.values(), ids=WRONG.keys())
def test_what_does_not_fit_is_named(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        prepare(Graph.from_model(two_inputs()), "tensorrt", config)
