"""`onnxq lint` on files of any origin, and `onnxq simulate` on the folder of a run."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import onnxruntime as ort
import pytest


def test_lint_passes_the_file_that_was_written_for_the_target(run, finished: Path) -> None:
    result = run("lint", finished / "model.onnx", "-b", "onnxruntime")
    assert result.exit_code == 0, result.stdout
    assert "nothing that onnxruntime would not take was found" in result.stderr + result.stdout


def test_lint_finds_what_another_target_would_not_take(run, finished: Path) -> None:
    result = run("lint", finished / "model.onnx", "-b", "tensorrt", "--json")
    assert result.exit_code == 1
    findings = json.loads(result.stdout)
    assert {"dtype", "float-bias"} <= {finding["rule"] for finding in findings}
    assert all(finding["tensor"] and finding["message"] and finding["remedy"] for finding in findings)


def test_lint_of_a_float_model_says_that_only_operators_were_looked_at(run, model: Path) -> None:
    result = run("lint", model, "-b", "tensorrt")
    assert result.exit_code == 0
    assert "only its operators were looked at" in result.stderr + result.stdout


def test_lint_refuses_an_unknown_target_and_a_missing_file(run, model: Path, tmp_path: Path) -> None:
    assert run("lint", model, "-b", "tensorrd").exit_code == 2
    result = run("lint", tmp_path / "none.onnx", "-b", "tensorrt")
    assert result.exit_code == 2
    assert "none.onnx" in result.stderr


def test_simulate_writes_a_model_without_quantizers_of_the_file_and_measures_it(
    run, finished: Path, model: Path, data: Path, tmp_path: Path
) -> None:
    target = tmp_path / "simulated.onnx"
    result = run("simulate", model, "--plan", finished, "-o", target, "-d", data, "--json")
    assert result.exit_code == 0, result.stderr
    (output,) = json.loads(result.stdout)["outputs"]
    assert output["sqnr_db"] > 25
    onnx.checker.check_model(str(target))
    assert ort.InferenceSession(str(target)).get_outputs()[0].name == "logits"


@pytest.mark.parametrize("missing", ["plan.json", "qparams.json"])
def test_simulate_names_the_file_that_is_missing(
    run, model: Path, finished: Path, tmp_path: Path, missing: str
) -> None:
    for name in ("plan.json", "qparams.json"):
        if name != missing:
            (tmp_path / name).write_text((finished / name).read_text())
    result = run("simulate", model, "--plan", tmp_path, "-o", tmp_path / "s.onnx")
    assert result.exit_code == 2
    assert missing in result.stderr
    assert not (tmp_path / "s.onnx").exists()


def test_list_backends_is_a_table_and_one_of_them_in_full(run) -> None:
    table = run("list", "backends")
    assert table.exit_code == 0
    assert "read by" in table.stdout
    one = run("list", "backends", "tensorrt")
    assert "options" in one.stdout
    assert "writes" in one.stdout
    assert "uint16" in run("list", "backends", "qnn:activation=uint16").stdout
    assert run("list", "backends", "tensort").exit_code == 2


def test_strict_refuses_an_operator_that_the_target_does_not_know(run, model: Path, data: Path, tmp_path: Path) -> None:
    arguments = ("quantize", model, "-b", "tensorrt", "-d", data, "-o", tmp_path / "out", "--strict")
    refused = run(*arguments)
    assert refused.exit_code == 2
    assert "[no-rule] tensor 'global_pool.out' (node 'global_pool')" in refused.stderr
    assert "--skip op:GlobalAveragePool" in refused.stderr
    assert not (tmp_path / "out").exists()
    assert run(*arguments, "--skip", "op:GlobalAveragePool").exit_code == 0


def test_a_plan_beyond_the_limits_is_refused_before_calibration(run, model: Path, data: Path, tmp_path: Path) -> None:
    settings = tmp_path / "wrong.toml"
    settings.write_text("[activation]\nsymmetric = false\n")
    result = run("quantize", model, "-b", "sophgo_cv18x", "-d", data, "-o", tmp_path / "out", "-c", settings)
    assert result.exit_code == 2
    assert "[zero-point-zero] tensor 'image'" in result.stderr
    assert "symmetric = true" in result.stderr


def test_a_combination_of_options_that_does_not_exist_is_refused(run, model: Path, data: Path, tmp_path: Path) -> None:
    target = "sophgo_bm1688:mode=weight_only,strategy=CNN"
    result = run("quantize", model, "-b", target, "-d", data, "-o", tmp_path / "out")
    assert result.exit_code == 2
    assert "weight_only" in result.stderr
    assert "strategy=Transformer" in result.stderr


def test_findings_are_shown_when_only_errors_are_wanted(run, finished: Path) -> None:
    result = run("lint", finished / "model.onnx", "-b", "tensorrt", "--quiet")
    assert result.exit_code == 1
    assert "float-bias" in result.stdout


def test_simulate_does_not_replace_the_model_of_the_run(run, model: Path, finished: Path) -> None:
    before = (finished / "model.onnx").read_bytes()
    result = run("simulate", model, "--plan", finished, "-o", finished / "model.onnx")
    assert result.exit_code == 2
    assert (finished / "model.onnx").read_bytes() == before


def test_calibrate_refuses_an_edited_plan_beyond_the_limits(run, model: Path, data: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    assert run("place", model, "-b", "tensorrt", "-o", plan, "-q").exit_code == 0
    edited = json.loads(plan.read_text())
    edited["tensors"]["image"]["spec"]["granularity"] = {"per": "channel", "axis": 1}
    plan.write_text(json.dumps(edited))
    result = run("calibrate", model, "--plan", plan, "-d", data, "-o", tmp_path / "qparams.json")
    assert result.exit_code == 2
    assert "[activation-per-tensor] tensor 'image'" in result.stderr
    assert not (tmp_path / "qparams.json").exists()


def test_files_of_an_earlier_run_are_named(run, model: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run("quantize", model, "-b", "tensorrt", "-d", data, "-o", out, "-q").exit_code == 0
    assert run("quantize", model, "-b", "onnxruntime", "-d", data, "-o", out, "-q").exit_code == 0
    notes = json.loads((out / "report.json").read_text())["notes"]
    assert any("earlier run for tensorrt" in note and "model_calibration.cache" in note for note in notes)
