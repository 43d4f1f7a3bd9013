"""The stages as commands: place, calibrate and emit give what `quantize` gives; compare ranks layers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onnxq.types import QuantPlan


def test_stages_one_by_one_write_the_model_that_quantize_writes(
    run, model: Path, data: Path, finished: Path, tmp_path: Path
) -> None:
    plan, qparams, out = tmp_path / "plan.json", tmp_path / "qparams.json", tmp_path / "out"
    assert run("place", model, "-b", "onnxruntime", "-o", plan).exit_code == 0
    calibrated = run("calibrate", model, "--plan", plan, "-d", data, "-o", qparams)
    assert calibrated.exit_code == 0
    assert "25 tensors" in calibrated.stderr
    emitted = run("emit", model, "--plan", plan, "--qparams", qparams, "-o", out, "-d", data, "--json")
    assert emitted.exit_code == 0
    assert (out / "model.onnx").read_bytes() == (finished / "model.onnx").read_bytes()
    whole = json.loads((finished / "report.json").read_text())
    assert json.loads(emitted.stdout)["sqnr_db"] == whole["sqnr_db"]


def test_emit_without_data_measures_no_accuracy(run, model: Path, finished: Path, tmp_path: Path) -> None:
    plan, qparams = finished / "plan.json", finished / "qparams.json"
    result = run("emit", model, "--plan", plan, "--qparams", qparams, "-o", tmp_path / "out", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["sqnr_db"] == {}
    assert (tmp_path / "out" / "model.onnx").read_bytes() == (finished / "model.onnx").read_bytes()


def test_place_prints_every_node_with_its_state_and_reason(run, model: Path) -> None:
    result = run("place", model, "-b", "tensorrt", "--skip", "op:Gemm")
    assert result.exit_code == 0
    lines = {line.split()[0]: line for line in result.stdout.splitlines() if line.strip()}
    assert "quantized" in lines["stem.conv"]
    assert "runs inside 'stem.conv'" in lines["stem.relu"]
    assert "excluded by 'op:Gemm'" in lines["classifier"]


def test_place_as_json_is_the_plan(run, model: Path, tmp_path: Path) -> None:
    result = run("place", model, "-b", "tensorrt", "-o", tmp_path / "plan.json", "--json")
    assert json.loads(result.stdout) == json.loads((tmp_path / "plan.json").read_text())
    assert QuantPlan.from_json(json.loads(result.stdout)).backend == "tensorrt"


def test_calibrate_without_a_plan_writes_the_plan_beside(run, model: Path, data: Path, tmp_path: Path) -> None:
    result = run("calibrate", model, "-b", "tensorrt", "-d", data, "-o", tmp_path / "new" / "qparams.json")
    assert result.exit_code == 0
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"plan.json", "qparams.json"}


def test_calibrate_takes_another_observer_than_the_plan(
    run, model: Path, data: Path, finished: Path, tmp_path: Path
) -> None:
    options = ["--plan", finished / "plan.json", "-d", data, "-o", tmp_path / "qparams.json"]
    assert run("calibrate", model, *options, "--observer", "percentile:90").exit_code == 0
    scale = json.loads((tmp_path / "qparams.json").read_text())["tensors"]["stem.relu.out"]["scale"]
    assert scale < json.loads((finished / "qparams.json").read_text())["tensors"]["stem.relu.out"]["scale"]


def test_compare_ranks_the_worst_layer_first(run, model: Path, data: Path, finished: Path) -> None:
    result = run("compare", model, finished, "-d", data, "--worst", 3, "--json")
    answer = json.loads(result.stdout)
    values = [layer["sqnr_db"] for layer in answer["layers"]]
    assert len(values) == 3 < answer["compared"]
    assert values == sorted(values)
    table = run("compare", model, finished / "model.onnx", "-d", data, "--worst", 3).stdout
    assert answer["layers"][0]["tensor"] in table


@pytest.mark.parametrize("edit", ["missing spec", "wrong kind", "no json"])
def test_emit_refuses_a_plan_that_was_edited_badly(run, model: Path, finished: Path, tmp_path: Path, edit: str) -> None:
    plan = json.loads((finished / "plan.json").read_text())
    if edit == "missing spec":
        del plan["tensors"]["image"]["spec"]
    elif edit == "wrong kind":
        plan["tensors"] = 3
    text = json.dumps(plan)[: 50 if edit == "no json" else None]
    (tmp_path / "edited.json").write_text(text)
    options = ["--plan", tmp_path / "edited.json", "--qparams", finished / "qparams.json", "-o", tmp_path / "out"]
    result = run("emit", model, *options)
    assert result.exit_code == 2
    assert "edited.json" in result.stderr
    assert not (tmp_path / "out").exists()
