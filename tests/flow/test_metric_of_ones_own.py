"""`metric=` and `--metric`: the user's figures of both models in report, summary and page, and a demand that fails."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import onnxq
from onnxq.cli.app import app
from onnxq.demo import load_data, model_path
from onnxq.errors import CheckFailed, ConfigError, DataError
from onnxq.page.document import read_page

CONFIG = {"effort": 0, "minimum_sqnr_db": -100.0}
SAMPLES = 60


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("labelled") / "test.npz"
    data = load_data()
    np.savez(path, image=data.test_images[:SAMPLES], labels=data.test_labels[:SAMPLES])
    return path


def calibration() -> dict[str, np.ndarray]:
    return {"image": load_data().calibration[:8]}


def wrong(outputs: Mapping[str, np.ndarray], labels: np.ndarray) -> float:
    """How many are wrong: less is better."""
    (classes,) = outputs.values()
    return float((classes.argmax(axis=1) != labels).sum())


wrong.lower_is_better = True  # type: ignore[attr-defined]


def test_metrics_of_both_models_are_in_report_summary_and_page(labelled: Path, tmp_path: Path) -> None:
    metrics = ["accuracy", wrong, "agreement"]
    result = onnxq.quantize(
        model_path(), backend="onnxruntime", data=calibration(), metric=metrics, evaluate=labelled, config=CONFIG,
        out=tmp_path,
    )  # fmt: skip
    task = result.report["task"]
    assert task["samples"] == SAMPLES
    accuracy, errors, agreement = task["metrics"]
    evaluated = onnxq_evaluate(tmp_path, labelled)
    assert accuracy["float"] == evaluated["float"]["accuracy"]
    assert accuracy["quantized"] == next(iter(evaluated["models"].values()))["accuracy"]
    assert errors["float"] == pytest.approx(SAMPLES * (1 - accuracy["float"]))
    assert (agreement["against_float"], accuracy["against_float"]) == (True, False)
    assert f"{accuracy['text']} on {SAMPLES} samples" in result.summary()
    assert read_page(tmp_path / "report.html")["report"]["task"] == task


def onnxq_evaluate(folder: Path, data: Path) -> dict[str, dict[str, dict[str, float]]]:
    words = ["evaluate", str(model_path()), str(folder / "model.onnx"), "-d", str(data), "--metric", "accuracy"]
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    found: dict[str, dict[str, dict[str, float]]] = json.loads(done.stdout)
    return found


def test_a_demand_that_is_not_met_leaves_no_files(labelled: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(CheckFailed, match="was asked for, so no files were written"):
        onnxq.quantize(
            model_path(), backend="onnxruntime", data=calibration(), metric="accuracy", evaluate=labelled, reach=1.01,
            config=CONFIG, out=out,
        )  # fmt: skip
    assert not (out / "model.onnx").exists()
    held = onnxq.quantize(
        model_path(), backend="onnxruntime", data=calibration(), metric="accuracy", evaluate=labelled, max_drop=0.5,
        config=CONFIG, out=out,
    )  # fmt: skip
    assert "0.5 from the float model's" in held.report["task"]["demand"]


def test_the_command_line_fails_with_the_figures(labelled: Path, tmp_path: Path) -> None:
    calib = tmp_path / "calib.npz"
    np.savez(calib, **calibration())  # type: ignore[arg-type]
    words = ["quantize", str(model_path()), "-b", "onnxruntime", "-d", str(calib), "--effort", "0"]
    words += ["--metric", "accuracy", "--eval", str(labelled), "-o", str(tmp_path / "out")]
    failed = CliRunner().invoke(app, [*words, "--reach", "1.5"])
    assert failed.exit_code == 1
    assert "accuracy at least 1.5 was asked for" in failed.stderr
    done = CliRunner().invoke(app, [*words, "--max-drop", "0.5"])
    assert done.exit_code == 0, done.stderr
    assert f"on {SAMPLES} samples" in done.stdout
    assert "held: accuracy at least" in done.stdout


def test_what_is_wrong_is_said_before_anything_is_calibrated(
    labelled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxq.session.session.Session.calibrated", lambda *given, **more: pytest.fail("too late"))

    def run(**task: object) -> None:
        onnxq.quantize(model_path(), backend="onnxruntime", data=calibration(), out=tmp_path / "out", **task)  # type: ignore[arg-type]

    with pytest.raises(ConfigError, match="max-drop says nothing without a metric"):
        run(max_drop=0.1)
    with pytest.raises(ConfigError, match="asked for twice"):
        run(metric=["accuracy", "accuracy"], evaluate=labelled)
    with pytest.raises((ConfigError, DataError), match="labels"):
        run(metric="accuracy")
    with pytest.raises(ConfigError, match="one of --hold, --max-drop and --reach"):
        run(metric="accuracy", evaluate=labelled, hold=0.9, max_drop=0.1)
