"""Olive runs onnxq as a pass: from Python with both kinds of data, and from its own command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxq.demo import load_data, model_path
from tests.readers.environment import run_check

pytestmark = pytest.mark.readers


def test_workflows_write_checked_models_with_their_reports(tmp_path: Path) -> None:
    np.savez(tmp_path / "calib.npz", image=load_data().calibration[:16])
    found = run_check("olive", model_path(), tmp_path / "calib.npz", tmp_path, timeout=1800)["workflows"]
    assert found.keys() == {"data", "declared", "command"}
    for written in found.values():
        assert {"model.onnx", "report.json", "report.html", "plan.json"} <= set(written["beside"])
        (model,) = (path for path in written["models"] if path.endswith("/model.onnx"))
        kinds = [node.op_type for node in onnx.load(model).graph.node]
        assert kinds.count("QuantizeLinear") > 3
    assert "model_calibration.cache" in found["data"]["beside"]
    assert "model_calibration.cache" not in found["declared"]["beside"]
