"""`onnxq quantize` and `onnxq demo`: what is written, printed and returned."""

from __future__ import annotations

import json
from pathlib import Path

import onnxruntime
import pytest

FILES = {"model.onnx", "plan.json", "qparams.json", "config.json", "report.json", "report.html"}


def test_writes_a_model_that_onnxruntime_loads_and_nothing_else(finished: Path) -> None:
    assert {path.name for path in finished.iterdir()} == FILES
    session = onnxruntime.InferenceSession(finished / "model.onnx", providers=["CPUExecutionProvider"])
    assert [port.name for port in session.get_outputs()] == ["logits"]


def test_summary_names_coverage_accuracy_size_and_files(run, model: Path, data: Path, tmp_path: Path) -> None:
    result = run("quantize", model, "-b", "tensorrt", "-d", data, "-o", tmp_path / "out", "--effort", 0)
    assert result.exit_code == 0
    for word in ("10 quantized", "dB on output 'logits'", "KiB", "calibrate", "no rule for GlobalAveragePool"):
        assert word in result.stdout
    assert str(tmp_path / "out" / "model.onnx") in result.stdout


def test_summary_counts_the_kernels_of_onnxruntime(run, model: Path, data: Path, tmp_path: Path) -> None:
    result = run("quantize", model, "-b", "onnxruntime", "-d", data, "-o", tmp_path / "out", "--effort", 0)
    assert "integer: 6 QLinearConv" in result.stdout
    assert "outputs compared on 16 samples" in result.stdout


def test_json_is_the_report_and_nothing_else(run, model: Path, data: Path, tmp_path: Path) -> None:
    result = run(
        "quantize",
        model,
        "-b",
        "onnxruntime",
        "-d",
        data,
        "-o",
        tmp_path / "out",
        "--samples",
        4,
        "--effort",
        0,
        "--json",
    )
    report = json.loads(result.stdout)
    assert report == json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["calibration_samples"] == 4


def test_quiet_prints_nothing_when_all_is_well(run, model: Path, data: Path, tmp_path: Path) -> None:
    result = run("quantize", model, "-b", "onnxruntime", "-d", data, "-o", tmp_path / "out", "--effort", 0, "--quiet")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


def test_options_win_over_the_configuration_and_skips_add_up(run, model: Path, data: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('observer = "mse"\nskip = ["stem.conv"]\n')
    options = ["--config", config, "--observer", "percentile:99.9", "--skip", "head.conv", "--json"]
    result = run("quantize", model, "-b", "onnxruntime", "-d", data, "-o", tmp_path / "out", "--effort", 0, *options)
    report = json.loads(result.stdout)
    assert report["config"]["observer"] == "percentile:99.9"
    assert {"stem.conv", "head.conv"} <= set(report["coverage"]["float_nodes"])
    assert {"stem.conv", "head.conv"} <= set(report["coverage"]["float_codes"]["excluded"])


@pytest.mark.parametrize(
    ("options", "diagnosed"),
    [(("--diagnose",), True), ((), False), (("--no-diagnose",), False)],
    ids=["asked for", "by itself", "refused"],
)
def test_low_results_of_effort_0_are_diagnosed_where_somebody_asks_for_it(
    options: tuple[str, ...], diagnosed: bool, run, model: Path, data: Path, tmp_path: Path
) -> None:
    (tmp_path / "rough.toml").write_text('weight.dtype = "int4"\n')
    given = ["-b", "tensorrt", "-d", data, "-c", tmp_path / "rough.toml", "--samples", 16, "--effort", 0, "--json"]
    result = run("quantize", model, "-o", tmp_path / "o", *given, *options)
    assert result.exit_code == 0, result.stderr
    assert ("diagnosis" in json.loads(result.stdout)) == diagnosed


def test_random_data_is_a_warning_and_strict_makes_it_a_failure(run, model: Path, tmp_path: Path) -> None:
    options = ["-b", "onnxruntime", "--random", 2, "--json"]
    relaxed = run("quantize", model, "-o", tmp_path / "relaxed", *options)
    assert relaxed.exit_code == 0
    assert "2 random samples" in relaxed.stderr
    assert any("2 random samples" in warning for warning in json.loads(relaxed.stdout)["warnings"])
    strict = run("quantize", model, "-o", tmp_path / "strict", *options, "--strict")
    assert strict.exit_code == 1
    assert "--strict" in strict.stderr
    assert {path.name for path in (tmp_path / "strict").iterdir()} == FILES


def test_failed_check_exits_with_1_and_leaves_no_files(run, model: Path, data: Path, tmp_path: Path) -> None:
    result = run(
        "quantize", model, "-b", "onnxruntime", "-d", data, "-o", tmp_path / "out", "--effort", 0, "--min-sqnr", 200
    )
    assert result.exit_code == 1
    assert "logits" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_failed_check_keeps_the_files_of_an_earlier_run(run, model: Path, data: Path, tmp_path: Path) -> None:
    options = ["quantize", model, "-b", "onnxruntime", "-d", data, "-o", tmp_path, "--effort", 0, "--quiet"]
    assert run(*options).exit_code == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert run(*options, "--min-sqnr", 200).exit_code == 1
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("backend", ["onnxruntime", "tensorrt"])
def test_demo_measures_accuracy_and_speed(run, tmp_path: Path, backend: str) -> None:
    result = run("demo", "-b", backend, "-o", tmp_path / "demo")
    assert result.exit_code == 0
    for word in (
        "% float",
        "% quantized",
        "450 test images",
        " ms float",
        "KiB",
        str(tmp_path / "demo" / "model.onnx"),
    ):
        assert word in result.stdout
