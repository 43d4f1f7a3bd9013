"""Many lines of one kind are one line on the terminal, and all of them are in report.json."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx

from tests.cli.conftest import Run
from tests.zoo_graphs.net import Net

SPLITS = 5


def old_model(folder: Path) -> tuple[Path, Path]:
    """A model of opset 11, whose Splits are written otherwise from opset 13 on."""
    net = Net("many_notes", opset=11)
    y = net.conv_relu(net.input("x", [1, 3, 8, 8]), 3, 8)
    for number in range(SPLITS):
        halves = net.many("Split", [y], [f"left_{number}", f"right_{number}"], axis=1, split=[4, 4])
        y = net.node("Concat", *halves[::-1], axis=1)
    net.output(net.conv(y, 8, 4), [1, 4, 8, 8])
    onnx.save(net.model(), folder / "old.onnx")
    np.savez(folder / "data.npz", x=net.rng.normal(0, 1, (16, 3, 8, 8)).astype(np.float32))
    return folder / "old.onnx", folder / "data.npz"


def test_rewritten_nodes_are_one_line_with_a_count(run: Run, tmp_path: Path) -> None:
    model, data = old_model(tmp_path)
    out = tmp_path / "out"
    result = run("quantize", model, "-b", "tensorrt", "-d", data, "--effort", 0, "-o", out)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count("Split 11 -> Split 13") == 1
    assert f"{SPLITS} nodes rewritten for a newer opset, such as" in " ".join(result.stdout.split())
    report = json.loads((out / "report.json").read_text())
    assert len(report["kinds"]["opset"]) == SPLITS
    assert set(report["kinds"]["opset"]) <= set(report["notes"])


def test_one_nan_is_one_warning(run: Run, model: Path, tmp_path: Path, data: Path) -> None:
    image = np.load(data)["image"].copy()
    image[5, 0, 3, 3] = np.nan
    np.savez(tmp_path / "nan.npz", image=image)
    words = ["quantize", model, "-b", "onnxruntime", "-d", tmp_path / "nan.npz", "--effort", 0, "--samples", 16]
    result = run(*words, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    lines = [line for line in result.stderr.splitlines() if "NaN/inf" in line]
    assert len(lines) == 1
    assert lines[0].startswith("warning: input 'image': 1 NaN/inf value, first in sample 5, and ")
