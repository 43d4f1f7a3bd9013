"""MLflow has what a run was told, measured and wrote: by the command, and in a run that is active."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import onnxq
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
