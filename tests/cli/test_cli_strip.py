"""`onnxq strip`, and what other commands say about models that are quantized already."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.cli.conftest import Run
from tests.strip.quantized_models import dense_net, dynamic
from tests.zoo_graphs.net import Net


@pytest.fixture
def partly(tmp_path: Path) -> Path:
    """A model whose input is an integer, which no strip can take out."""
    net = Net("strip_partly")
    scale, zero = net.floats(0.1), net.constant(np.uint8(0))
    y = net.node("DequantizeLinear", net.input("x", [1, 4], np.uint8), scale, zero, name="from_outside")
    codes = net.node("QuantizeLinear", net.gemm(y, 4, 3), net.floats(0.2), net.constant(np.int8(0)))
    net.output(net.node("DequantizeLinear", codes, net.floats(0.2), net.constant(np.int8(0))), [1, 3])
    path = tmp_path / "partly.onnx"
    onnx.save(net.model(), path)
    return path


def test_a_quantized_model_can_be_quantized_anew(run: Run, finished: Path, data: Path, tmp_path: Path) -> None:
    target = tmp_path / "float.onnx"
    result = run("strip", finished / "model.onnx", "-o", target, "-d", data, "--json")
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    assert told["files"] == [str(target)]
    assert told["left"] == []
    assert told["before"]["DequantizeLinear"] > 0
    assert told["outputs"][0]["sqnr_db"] > 25
    again = run("quantize", target, "-b", "tensorrt", "-d", data, "--effort", 0, "-o", tmp_path / "again", "-q")
    assert again.exit_code == 0, again.stderr
    assert "quantized already" not in again.stderr


def test_the_summary_names_what_was_taken_out_and_restored(
    run: Run, finished: Path, data: Path, tmp_path: Path
) -> None:
    result = run("strip", finished / "model.onnx", "-o", tmp_path / "float.onnx", "-d", data)
    assert result.exit_code == 0, result.stderr
    for words in ("QuantizeLinear", "restored", "Relu behind", "against quantized", " dB on output"):
        assert words in result.stdout


def test_what_stays_quantized_is_refused_by_name(run: Run, partly: Path, tmp_path: Path) -> None:
    target = tmp_path / "float.onnx"
    result = run("strip", partly, "-o", target)
    assert result.exit_code == 2
    assert "node 'from_outside' (DequantizeLinear)" in result.stderr
    assert "--partial" in result.stderr
    assert not target.exists()


def test_partial_writes_the_rest_and_warns(run: Run, partly: Path, tmp_path: Path) -> None:
    target = tmp_path / "float.onnx"
    result = run("strip", partly, "-o", target, "--partial", "-q")
    assert result.exit_code == 0, result.stderr
    assert "'from_outside' (DequantizeLinear) stays quantized" in result.stderr
    assert [node.op_type for node in onnx.load(target).graph.node] == ["DequantizeLinear", "Gemm"]


def test_a_float_model_has_nothing_to_strip(run: Run, model: Path, tmp_path: Path) -> None:
    result = run("strip", model, "-o", tmp_path / "float.onnx")
    assert result.exit_code == 2
    assert "it is a float model" in result.stderr


def test_the_input_is_never_written_over(run: Run, partly: Path) -> None:
    before = partly.read_bytes()
    result = run("strip", partly, "-o", partly, "--partial")
    assert result.exit_code == 2
    assert partly.read_bytes() == before


def test_quantize_names_the_way_for_a_quantized_model(run: Run, finished: Path, data: Path, tmp_path: Path) -> None:
    result = run(
        "quantize", finished / "model.onnx", "-b", "tensorrt", "-d", data, "--effort", 0, "-o", tmp_path / "out"
    )
    assert result.exit_code == 2
    assert "quantized already" in result.stderr
    assert "onnxq strip MODEL -o float.onnx" in result.stderr


def test_inspect_counts_what_is_quantized_and_names_the_way(run: Run, finished: Path) -> None:
    path = finished / "model.onnx"
    facts = json.loads(run("inspect", path, "--json").stdout)
    (remark,) = [line for line in facts["remarks"] if "quantized already" in line]
    count = sum(node.op_type in ("QuantizeLinear", "DequantizeLinear") for node in onnx.load(path).graph.node)
    assert f"{count} QuantizeLinear and DequantizeLinear" in remark
    assert f"onnxq strip {path}" in remark


def test_a_range_that_stood_for_a_clip_is_suspected(run: Run, tmp_path: Path) -> None:
    net = Net("strip_suspect")
    scale, zero = net.floats(0.2 / 127), net.constant(np.int8(0))
    y = net.gemm(net.input("x", [1, 4]), 4, 3)
    net.output(net.node("DequantizeLinear", net.node("QuantizeLinear", y, scale, zero), scale, zero), [1, 3])
    onnx.save(net.model(), tmp_path / "clipped.onnx")
    np.savez(tmp_path / "x.npz", x=net.rng.normal(0, 3, (8, 4)).astype(np.float32))
    words = ["strip", tmp_path / "clipped.onnx", "-d", tmp_path / "x.npz", "-o", tmp_path / "float.onnx", "-q"]
    result = run(*words)
    assert result.exit_code == 0
    assert "--keep-ranges" in result.stderr
    assert run(*words, "--keep-ranges").stderr == ""


def test_inspect_tells_dynamic_quantization_apart(run: Run, tmp_path: Path) -> None:
    path = dynamic(dense_net()[0], tmp_path)
    (remark,) = [line for line in json.loads(run("inspect", path, "--json").stdout)["remarks"] if "quantized" in line]
    assert "(2 dynamic, 2 other quantized operators)" in remark
