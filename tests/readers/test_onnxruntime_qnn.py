"""Qualcomm's HTP, as onnxruntime-qnn emulates it, runs whole models without the CPU and is as accurate as the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.version_converter
import pytest

import onnxq
from tests.golden_graphs import GOLDEN
from tests.readers.environment import reader_python, record, run_check

pytestmark = pytest.mark.readers

LOSS_DB = 3.0
"""The HTP rounds in the middle of sums and has tables for curves: measured 2.6 dB at most, against 7 dB and more where
a kernel saturates because of a wrong scale."""


def on_htp(model: onnx.ModelProto, samples: list[dict[str, np.ndarray]], backend: str, folder: Path) -> dict[str, Any]:
    reader_python("onnxruntime_qnn")
    onnxq.quantize(model, backend=backend, data=samples, out=folder)
    np.savez(folder / "samples.npz", **{name: np.stack([s[name] for s in samples]) for name in samples[0]})
    files = (folder / "model.onnx", folder / "model_deploy_model.onnx", folder / "samples.npz", folder / "dlc")
    return run_check("onnxruntime_qnn", *files)


@pytest.mark.parametrize(
    "backend",
    [
        "qnn",
        "qnn:weight=uint8",
        "qnn:per_channel=yes",
        "qnn:activation=uint16",
        "qnn:activation=uint16,per_channel=yes",
    ],
)
@pytest.mark.parametrize("model", ["residual", "depthwise", "concat", "detector", "transformer"])
def test_the_htp_runs_all_nodes_as_accurately_as_the_file(model: str, backend: str, tmp_path: Path) -> None:
    golden = GOLDEN[model]()
    answer = on_htp(golden.model, golden.samples, backend, tmp_path)
    assert answer["runs_alone"], answer.get("error")
    assert answer["dlc_bytes"] > 1000
    for name, found in answer["outputs"].items():
        assert found["chip_db"] > found["file_db"] - LOSS_DB, name
        assert found["chip_db"] > 25, name
        if "uint16" not in backend:
            assert found["largest"] <= 12, name
        what = f"'{name}': values equal, one step away, more; SQNR of the HTP, of the file"
        counts = f"{found['equal']}, {found['one_step']}, {found['more']}"
        figure = f"{counts}; {found['chip_db']:.1f} dB, {found['file_db']:.1f} dB"
        record("onnxruntime_qnn", answer["version"], backend, model, what, figure)


def test_the_check_tells_when_the_htp_does_not_take_a_node(tmp_path: Path) -> None:
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 4])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 4])
    node = onnx.helper.make_node("Softsign", ["x"], ["y"])
    model = onnx.helper.make_model(
        onnx.helper.make_graph([node], "g", [x], [y]), opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8
    )
    reader_python("onnxruntime_qnn")
    onnx.save(model, tmp_path / "m.onnx")
    np.savez(tmp_path / "s.npz", x=np.ones((1, 1, 4), np.float32))
    answer = run_check("onnxruntime_qnn", tmp_path / "m.onnx", tmp_path / "m.onnx", tmp_path / "s.npz")
    assert not answer["runs_alone"]
    assert "CPU EP" in answer["error"]
