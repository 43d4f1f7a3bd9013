"""An observer and an operator of torch, each in one file of the user's: known to every command that needs them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.observers import OBSERVERS
from onnxq.torchnet import OPERATORS

Run = Callable[..., Any]

OBSERVER = '''
from dataclasses import dataclass
from typing import ClassVar

from onnxq.observers import OBSERVERS, Observer


@OBSERVERS.register("of_outliers")
@dataclass(frozen=True)
class OfOutliers(Observer):
    """A part of the whole range."""

    name: ClassVar[str] = "of_outliers"
    statistic: ClassVar[str] = "range"
    percent: float = 100.0

    def rows(self, statistic, spec):
        return statistic.minimum * self.percent / 100, statistic.maximum * self.percent / 100
'''

OPERATOR = """
import torch

from onnxq.torchnet import op


@op("Scaler", since=1, domain="ai.onnx.ml")
def scaler(call):
    offset, scale = torch.tensor(call.attribute("offset")), torch.tensor(call.attribute("scale"))
    return lambda x: (x - offset) * scale
"""


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OBSERVERS, "_items", dict(OBSERVERS.items()))
    definitions = list(OPERATORS.definitions())
    monkeypatch.setattr(OPERATORS, "_definitions", {})
    for definition in definitions:
        OPERATORS.add(definition)


def test_an_observer_is_one_file(run: Run, model: Path, data: Path, tmp_path: Path) -> None:
    file = tmp_path / "of_outliers.py"
    file.write_text(OBSERVER)
    entries = json.loads(run("list", "observers", "--plugin", file, "--json").stdout)
    assert {entry["name"]: entry["summary"] for entry in entries}["of_outliers"] == "A part of the whole range."

    def tensors(out: str, *observer: object) -> dict[str, Any]:
        options = ("-b", "tensorrt", "-d", data, "--effort", 0, "-o", tmp_path / out, "--quiet")
        result = run("quantize", model, *options, *observer)
        assert result.exit_code == 0, result.stderr
        found: dict[str, Any] = json.loads((tmp_path / out / "qparams.json").read_text())["tensors"]
        return found

    whole = tensors("whole")
    wider = tensors("wider", "--plugin", file, "--observer", "of_outliers:150")
    observed = [name for name, entry in wider.items() if entry["from"].startswith("of_outliers")]
    assert "image" in observed
    for name in observed:
        assert wider[name]["scale"] == pytest.approx(1.5 * whole[name]["scale"], rel=1e-6)
    weights = [name for name, entry in wider.items() if entry["from"] == "minmax"]
    assert weights
    assert all(wider[name] == whole[name] for name in weights)


def test_an_operator_of_torch_is_one_file(run: Run, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(0)
    weights = {"w": random.normal(size=(8, 4)), "v": random.normal(size=(4, 3))}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Scaler", ["h"], ["s"], domain="ai.onnx.ml", offset=[0.5] * 4, scale=[1.0, 2.0, 0.5, 1.0]),
        helper.make_node("MatMul", ["s", "v"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "scaled",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])],
        [numpy_helper.from_array(values.astype(np.float32), name) for name, values in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "model.onnx")
    np.savez(tmp_path / "train.npz", x=random.normal(size=(64, 8)).astype(np.float32))
    (tmp_path / "scaler.py").write_text(OPERATOR)
    training = ("qat", tmp_path / "model.onnx", "-b", "academic", "--train", tmp_path / "train.npz", "--steps", 4,
                "--batch-size", 16, "--fake-quantizer", "lsq", "-o", tmp_path / "out", "--quiet")  # fmt: skip
    refused = run(*training)
    assert refused.exit_code == 2
    assert "ai.onnx.ml::Scaler" in refused.stderr
    assert not (tmp_path / "out").exists()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        done = run(*training, "--plugin", tmp_path / "scaler.py")
    finally:
        torch.set_num_threads(threads)
    assert done.exit_code == 0, done.stderr
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["training"]["steps"] == 4  # the file computes what the net computes, which a run checks itself
    assert "Scaler" in {node.op_type for node in onnx.load(tmp_path / "out" / "model.onnx").graph.node}
