"""MLflow has what a run was told, measured and wrote: by the command, and in a run that is active."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import onnxq
from onnxq.cli.app import app
from onnxq.demo import load_data, model_path
from tests.readers.environment import run_check

pytestmark = pytest.mark.readers


def test_a_store_holds_settings_figures_and_files_of_a_run(tmp_path: Path) -> None:
    np.savez(tmp_path / "calib.npz", image=load_data().calibration[:16])
    by_command, inside = run_check("mlflow", model_path(), tmp_path / "calib.npz", tmp_path / "out")["runs"]
    assert (by_command["name"], inside["name"]) == ("digits onnxruntime", "mine")
    assert inside["params"].pop("mine") == "1"
    for run in (by_command, inside):
        assert run["status"] == "FINISHED"
        assert (run["params"]["backend"], run["params"]["effort"]) == ("onnxruntime", "0")
        assert run["metrics"]["sqnr_db.logits"] == run["metrics"]["worst_sqnr_db"] > 20
        assert 0 < run["metrics"]["file_bytes"] < run["metrics"]["float_bytes"]
        assert run["tags"]["onnxq.versions.onnxq"] == onnxq.__version__
        assert set(run["artifacts"]) == {path.name for path in (tmp_path / "out/run").iterdir()}


def test_a_training_has_its_settings_and_its_curves_step_by_step(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    np.savez(tmp_path / "calib.npz", image=load_data().calibration[:64])
    trained = tmp_path / "trained"
    words = ["qat", model_path(), "-b", "onnxruntime", "--train", tmp_path / "calib.npz", "--epochs", 2, "-o", trained]
    done = CliRunner().invoke(app, [*map(str, words), "-q"])
    assert done.exit_code == 0, done.output
    *_, found = run_check("mlflow", model_path(), tmp_path / "calib.npz", tmp_path / "out", trained)["runs"]
    assert found["params"]["training.epochs"] == "2"
    assert {"training.csv", "scales.csv", "report.html", "model.onnx"} <= set(found["artifacts"])
    with (trained / "training.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    losses = [int(row["step"]) for row in rows if row["loss"]]
    assert losses
    assert found["steps"]["training.loss"] == losses
    assert found["metrics"]["training.after"] > 0
