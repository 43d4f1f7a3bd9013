"""Plans know their float model: another one is refused, or taken with a word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.cli.conftest import Run


@pytest.fixture(scope="module")
def improved(run: Run, model: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose improvements have changed constants."""
    folder = tmp_path_factory.mktemp("improved") / "out"
    options = ["-d", data, "--improve", "bias_correction", "--min-sqnr", -100, "-o", folder, "-q"]
    settings = folder.parent / "four.toml"
    settings.write_text("[weight]\nbits = 3\n")
    result = run("quantize", model, "-b", "academic", "-c", settings, *options)
    assert result.exit_code == 0, result.stderr
    assert (folder / "model_float.onnx").exists()
    return folder


@pytest.fixture
def retrained(model: Path, tmp_path: Path) -> Path:
    """The same structure with other constants."""
    proto = onnx.load(model)
    weight = next(tensor for tensor in proto.graph.initializer if len(tensor.dims) == 4)
    values = onnx.numpy_helper.to_array(weight) * np.float32(1.01)
    weight.CopyFrom(onnx.numpy_helper.from_array(values, weight.name))
    path = tmp_path / "retrained.onnx"
    onnx.save(proto, path)
    return path


def weights(path: Path) -> dict[str, bytes]:
    return {tensor.name: onnx.numpy_helper.to_array(tensor).tobytes() for tensor in onnx.load(path).graph.initializer}


def commands(model: Path, folder: Path, out: Path) -> dict[str, list[Any]]:
    return {
        "simulate": ["simulate", model, "--plan", folder, "-o", out / "simulated.onnx"],
        "emit": ["emit", model, "--plan", folder, "--qparams", folder, "-o", out],
    }


@pytest.mark.parametrize(("command", "file"), [("simulate", "simulated.onnx"), ("emit", "model.onnx")])
def test_changed_constants_are_taken_from_the_model_beside_with_a_word(
    run: Run, model: Path, improved: Path, tmp_path: Path, command: str, file: str
) -> None:
    changed = improved / "model_float.onnx"
    right = run(*commands(changed, improved, tmp_path / "right")[command])
    assert right.exit_code == 0, right.stderr
    assert "belong to" not in right.stderr
    given = run(*commands(model, improved, tmp_path / "given")[command])
    assert given.exit_code == 0, given.stderr
    assert f"belong to {changed}" in given.stderr
    forced = run(*commands(model, improved, tmp_path / "forced")[command], "--other-model")
    assert forced.exit_code == 0, forced.stderr
    values = [weights(tmp_path / name / file) for name in ("right", "given", "forced")]
    assert values[0] == values[1] != values[2]


def test_outputs_are_those_that_improvements_have_come_to(
    run: Run, model: Path, improved: Path, data: Path, tmp_path: Path
) -> None:
    words = ["emit", model, "--plan", improved, "--qparams", improved, "-d", data, "--json", "-o"]
    (right,) = json.loads(run(*words, tmp_path / "right").stdout)["sqnr_db"].values()
    (wrong,) = json.loads(run(*words, tmp_path / "wrong", "--other-model").stdout)["sqnr_db"].values()
    assert right > wrong


@pytest.mark.parametrize("command", ["simulate", "emit"])
def test_a_retrained_model_is_refused_and_taken_when_asked_for(
    run: Run, retrained: Path, finished: Path, tmp_path: Path, command: str
) -> None:
    words = commands(retrained, finished, tmp_path / "new")[command]
    result = run(*words)
    assert result.exit_code == 2
    assert "calibrate again" in result.stderr
    assert "--other-model" in result.stderr
    taken = run(*words, "--other-model")
    assert taken.exit_code == 0, taken.stderr
    assert "belong to another float model" in taken.stderr


@pytest.mark.parametrize("command", ["simulate", "emit"])
def test_a_plan_of_an_earlier_onnxq_works_with_a_note(
    run: Run, model: Path, finished: Path, tmp_path: Path, command: str
) -> None:
    for name in ("plan.json", "qparams.json"):
        document = json.loads((finished / name).read_text())
        document.pop("model", None)
        (tmp_path / name).write_text(json.dumps(document))
    result = run(*commands(model, tmp_path, tmp_path / "new")[command])
    assert result.exit_code == 0, result.stderr
    assert "does not say to which float model it belongs" in result.stderr


def test_parameters_found_for_a_retrained_model_come_with_their_plan(
    run: Run, model: Path, retrained: Path, data: Path, tmp_path: Path
) -> None:
    plan, qparams = tmp_path / "plan.json", tmp_path / "qparams.json"
    assert run("place", model, "-b", "tensorrt", "-o", plan).exit_code == 0
    found = run("calibrate", retrained, "--plan", plan, "-d", data, "-o", qparams)
    assert found.exit_code == 0
    assert "other constants" in found.stderr
    beside = tmp_path / "qparams.plan.json"
    emitted = run("emit", retrained, "--plan", beside, "--qparams", qparams, "-o", tmp_path / "out", "-q")
    assert emitted.exit_code == 0, emitted.stderr


def test_compare_takes_the_float_model_beside_and_says_so(run: Run, model: Path, improved: Path, data: Path) -> None:
    changed = improved / "model_float.onnx"
    one = run("compare", model, improved, "-d", data, "--json")
    other = run("compare", changed, improved, "-d", data, "--json")
    assert one.exit_code == other.exit_code == 0
    assert f"compared with {changed}" in one.stderr
    assert "compared with" not in other.stderr
    assert json.loads(one.stdout) == json.loads(other.stdout)
    forced = run("compare", model, improved, "-d", data, "--json", "--other-model")
    assert json.loads(forced.stdout)["float"] == str(model)
    assert json.loads(forced.stdout)["layers"] != json.loads(one.stdout)["layers"]


def test_compare_warns_about_another_model(run: Run, retrained: Path, finished: Path, data: Path) -> None:
    result = run("compare", retrained, finished, "-d", data, "--json")
    assert result.exit_code == 0
    assert "is not the float model" in result.stderr


@pytest.mark.parametrize("command", ["compare", "evaluate"])
def test_the_model_of_the_run_is_a_note_and_another_of_its_kind_a_warning(
    run: Run, model: Path, improved: Path, data: Path, tmp_path: Path, command: str
) -> None:
    target = improved if command == "evaluate" else improved / "model.onnx"
    elsewhere = tmp_path / "copy.onnx"
    elsewhere.write_bytes(model.read_bytes())
    for given, kind in ((model, "note"), (elsewhere, "warning")):
        result = run(command, given, target, "-d", data)
        assert result.exit_code == 0, result.stderr
        (line,) = [line for line in result.stderr.splitlines() if "whose constants improvements have changed" in line]
        assert line.startswith(f"{kind}: ")
