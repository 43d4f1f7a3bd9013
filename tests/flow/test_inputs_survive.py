"""No output takes the place of an input, whatever it is called: not the model, not the files with its weights."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import onnxq
from onnxq.demo import load_data, model_path
from onnxq.errors import ConfigError

CASES = [
    ("onnxruntime", "model.onnx"),
    ("ncnn", "model_deploy_model.onnx"),
    ("tengine_u8", "model_for_tengine.onnx"),
    ("stpu", "model_for_stpu.onnx"),
    ("vitis", "model_fixneuron.onnx"),
]


@pytest.mark.parametrize(("backend", "name"), CASES)
def test_a_model_named_like_an_output_is_refused_before_any_work(backend: str, name: str, tmp_path: Path) -> None:
    model = tmp_path / name
    shutil.copy(model_path(), model)
    before = model.read_bytes()
    with pytest.raises(ConfigError, match="would overwrite the input"):
        onnxq.quantize(model, backend=backend, data={"image": load_data().calibration[:4]}, out=tmp_path)
    assert model.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_weights_file_named_like_an_output_survives(tmp_path: Path) -> None:
    graph = onnxq.load(model_path())
    folder = tmp_path / "out"
    folder.mkdir()
    graph.save(folder / "model.onnx", external=True)
    import onnx

    moved = onnx.load(str(folder / "model.onnx"), load_external_data=False)
    onnx.save(moved, folder / "net.onnx")
    (folder / "model.onnx").unlink()
    weights = folder / "model.onnx.data"
    before = weights.read_bytes()
    data = {"image": load_data().calibration[:4].astype(np.float32)}
    with pytest.raises(ConfigError, match=r"model\.onnx\.data"):
        onnxq.quantize(folder / "net.onnx", backend="onnxruntime", data=data, out=folder)
    assert weights.read_bytes() == before
    assert sorted(path.name for path in folder.iterdir()) == ["model.onnx.data", "net.onnx"]
