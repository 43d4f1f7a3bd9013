"""No output takes the place of an input, whatever it is called, nor of a model that onnxq has not written."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import onnxq
from onnxq.cli.app import app
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
        onnxq.quantize(
            model, backend=backend, data={"image": load_data().calibration[:4]}, out=tmp_path, config={"effort": 0}
        )
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
        onnxq.quantize(folder / "net.onnx", backend="onnxruntime", data=data, out=folder, config={"effort": 0})
    assert weights.read_bytes() == before
    assert sorted(path.name for path in folder.iterdir()) == ["model.onnx.data", "net.onnx"]


FOREIGN = [*CASES, ("tensorrt", "model_float.onnx")]


@pytest.mark.parametrize(("backend", "name"), FOREIGN)
@pytest.mark.parametrize("report", [None, "[1]", '{"files": []}', "no JSON"])
def test_a_model_that_onnxq_has_not_written_is_not_overwritten(
    backend: str, name: str, report: str | None, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(b"somebody's")
    if report is not None:
        (tmp_path / "report.json").write_text(report)
    with pytest.raises(ConfigError, match=rf"{name} is there already, and no report\.json of onnxq"):
        onnxq.quantize(
            model_path(),
            backend=backend,
            data={"image": load_data().calibration[:4]},
            out=tmp_path,
            config={"effort": 0},
        )
    assert (tmp_path / name).read_bytes() == b"somebody's"
    assert {path.name for path in tmp_path.iterdir()} == {name, *(() if report is None else ("report.json",))}


def test_a_model_given_as_a_proto_does_not_vanish_under_its_quantized_one(tmp_path: Path) -> None:
    import onnx

    shutil.copy(model_path(), tmp_path / "model.onnx")
    proto = onnx.load(tmp_path / "model.onnx")
    with pytest.raises(ConfigError, match=r"model\.onnx is there already"):
        onnxq.quantize(
            proto,
            backend="onnxruntime",
            data={"image": load_data().calibration[:4]},
            out=tmp_path,
            config={"effort": 0},
        )


def test_a_folder_of_an_earlier_run_is_written_to_again(tmp_path: Path) -> None:
    data = {"image": load_data().calibration[:4]}
    for backend in ("vitis", "ncnn", "vitis"):  # of the first one something is left that the second does not know
        result = onnxq.quantize(model_path(), backend=backend, data=data, out=tmp_path, config={"effort": 0})
        assert result.report["backend"] == backend


def test_emit_does_not_overwrite_a_foreign_model_either(tmp_path: Path) -> None:
    data = {"image": load_data().calibration[:4]}
    result = onnxq.quantize(model_path(), backend="tensorrt", data=data, out=tmp_path / "out", config={"effort": 0})
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "model.onnx").write_bytes(b"somebody's")
    written = result.model.parent
    command = ["emit", model_path(), "--plan", written, "--qparams", written, "-o", elsewhere]
    answer = CliRunner().invoke(app, [str(part) for part in command])
    assert answer.exit_code == 2
    assert "is there already" in " ".join(answer.stderr.split())
    assert [path.name for path in elsewhere.iterdir()] == ["model.onnx"]


def test_files_are_written_again_beside_the_float_model_that_they_belong_to(tmp_path: Path) -> None:
    data = {"image": load_data().calibration[:16]}
    onnxq.quantize(model_path(), backend="academic:w_bits=4,a_bits=4", data=data, out=tmp_path, config={"effort": 1})
    improved = tmp_path / "model_float.onnx"
    before = improved.read_bytes()
    (tmp_path / "model.onnx").unlink()
    command = ["emit", str(improved), "--plan", str(tmp_path), "--qparams", str(tmp_path), "-o", str(tmp_path)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "model.onnx").exists()
    assert improved.read_bytes() == before
