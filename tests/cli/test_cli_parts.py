"""Outputs that are joined of boxes and scores, as a user of the command line meets them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import parser

from onnxq.graph import Graph


@pytest.fixture(scope="module")
def detector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Boxes of hundreds and scores of a Sigmoid behind one layer, joined to one output."""
    path = tmp_path_factory.mktemp("detector") / "detector.onnx"
    rng = np.random.default_rng(0)
    weights = ", ".join(f"{value:.4f}" for value in rng.normal(0, 0.4, 6 * 3).ravel())
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[1,3,8,8] x) => (float[1,6,64] y)
    <float[6,3,1,1] w = {{{weights}}}, float k = {{200}}, int64[2] n = {{4, 2}}, int64[3] flat = {{1, 6, 64}}> {{
        c = Conv(x, w) f = Reshape(c, flat) b, t = Split<axis=1>(f, n)
        boxes = Mul(b, k) s = Sigmoid(t) y = Concat<axis=1>(boxes, s) }}"""
    Graph.from_model(parser.parse_model(text)).save(path)
    np.savez(path.with_suffix(".npz"), x=rng.normal(0, 1, (16, 3, 8, 8)).astype(np.float32))
    return path


def quantize(run, detector: Path, out: Path, *more: object):  # type: ignore[no-untyped-def]
    data = detector.with_suffix(".npz")
    return run("quantize", detector, "-b", "onnxruntime", "-d", data, "--effort", 0, "-o", out, *more)


def test_parts_and_their_decisions_are_shown(run, detector: Path, tmp_path: Path) -> None:
    result = quantize(run, detector, tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    assert "on its part 'y[:, 0:4]'" in result.stdout
    assert "on its part 'y[:, 4:6]'" in result.stdout
    assert "scores above half of the highest" in result.stdout
    (output,) = json.loads((tmp_path / "out" / "report.json").read_text())["checks"]["outputs"]
    boxes, scores = output["parts"]
    assert (boxes["name"], scores["name"]) == ("y[:, 0:4]", "y[:, 4:6]")
    assert "decisions" not in boxes
    assert scores["decisions"]["kind"] == "above_half"
    assert scores["per_sample"]["count"] == output["per_sample"]["count"] == 16
    assert output["parts_db"] == {part["name"]: part["sqnr_db"] for part in output["parts"]}


def test_a_part_below_the_limit_is_a_failure_without_files(run, detector: Path, tmp_path: Path) -> None:
    result = quantize(run, detector, tmp_path / "out", "--min-sqnr", 200)
    assert result.exit_code == 1
    assert "part 'y[:, 4:6]': SQNR" in result.stderr
    assert "below the required 200 dB" in result.stderr
    assert not (tmp_path / "out" / "model.onnx").exists()


def test_simulate_shows_parts_and_says_which_are_too_low(run, detector: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert quantize(run, detector, folder, "--quiet").exit_code == 0
    arguments = ("simulate", detector, "--plan", folder, "-o", tmp_path / "s.onnx", "-d", detector.with_suffix(".npz"))
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    assert "y[:, 4:6]" in result.stdout
    assert "below the required" not in result.stderr
    limit = tmp_path / "limit.json"
    limit.write_text('{"minimum_sqnr_db": 200.0}')
    result = run(*arguments, "-c", limit, "--json")
    assert result.exit_code == 0, result.stderr
    assert "part 'y[:, 4:6]': SQNR" in result.stderr
    assert [part["name"] for part in json.loads(result.stdout)["outputs"][0]["parts"]] == ["y[:, 0:4]", "y[:, 4:6]"]
