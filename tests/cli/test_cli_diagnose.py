"""`onnxq diagnose`: of a model, of the folder of a run, as text, as JSON, and as a configuration that fixes it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxq.config.toml_text import write_toml
from onnxq.graph import Graph
from tools.illnesses import ILLNESSES

Run = Callable[..., Any]

TIED = next(illness for illness in ILLNESSES if illness.name == "shared scale of two heads")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with heads.onnx, images.npz and tied.toml, which gives boxes and scores one scale."""
    folder = tmp_path_factory.mktemp("files")
    patient = TIED.ill(folder)
    patient.model.save(folder / "heads.onnx")
    np.savez(folder / "images.npz", image=patient.data[:16])
    write_toml(folder / "tied.toml", {"backend": TIED.backend, **patient.config})
    return folder


@pytest.fixture(scope="module")
def diagnosed(run: Run, files: Path) -> Any:
    """The command with --json and --apply."""
    given = [files / "heads.onnx", "-c", files / "tied.toml", "-d", files / "images.npz"]
    result = run("diagnose", *given, "--json", "--apply", files / "fixed.toml")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_json_has_quantizers_causes_and_remedies(diagnosed: Any) -> None:
    assert diagnosed["backend"] == "qnn"
    assert diagnosed["quantizers"][0]["tensors"] == ["boxes", "scores"]
    first = diagnosed["causes"][0]
    assert first["code"] == "tied_ranges"
    assert {member["tensor"]: member["lost"] for member in first["findings"][0]["members"]} == {
        "boxes": False,
        "scores": True,
    }
    assert diagnosed["remedies"][0]["line"] == "take tensor.boxes.share out; take tensor.scores.share out"
    assert diagnosed["remedies"][0]["pays"]


def test_the_terminal_shows_what_json_has(run: Run, files: Path, diagnosed: Any) -> None:
    given = [files / "heads.onnx", "-c", files / "tied.toml", "-d", files / "images.npz"]
    result = run("diagnose", *given)

    assert result.exit_code == 0, result.stderr
    shown = " ".join(result.stdout.split())
    assert "tied_ranges" in shown
    assert diagnosed["causes"][0]["text"] in shown
    best = diagnosed["combined"]
    assert f"{best['before_db']:.1f} -> {best['after_db']:.1f} dB" in shown


def test_quantize_with_the_written_configuration_gives_what_was_promised(
    run: Run, files: Path, diagnosed: Any, tmp_path: Path
) -> None:
    given = ["quantize", files / "heads.onnx", "-c", files / "fixed.toml", "--effort", 0, "-o", tmp_path / "out"]
    result = run(*given, "--json")

    assert result.exit_code == 0, result.stderr
    reached = min(json.loads(result.stdout)["sqnr_db"].values())
    assert reached >= diagnosed["combined"]["after_db"] - 0.5


def test_the_folder_of_a_run_is_diagnosed_with_its_own_configuration_and_data(
    run: Run, files: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    given = [files / "heads.onnx", "-c", files / "tied.toml", "-d", files / "images.npz"]
    quantized = run("quantize", *given, "--effort", 0, "--min-sqnr", 0, "-o", out, "-q")
    assert quantized.exit_code == 0, quantized.stderr

    result = run("diagnose", out, "--float", files / "heads.onnx", "--json")

    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["causes"][0]["code"] == "tied_ranges"


def test_the_float_model_that_improvements_have_left_is_enough(run: Run, files: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    given = [files / "heads.onnx", "-c", files / "tied.toml", "-d", files / "images.npz"]
    quantized = run("quantize", *given, "--effort", 0, "--min-sqnr", 0, "-o", out, "-q")
    assert quantized.exit_code == 0, quantized.stderr
    shutil.copy(files / "heads.onnx", out / "model_float.onnx")  # as it stands there after an improvement

    result = run("diagnose", out, "--json")

    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["causes"][0]["code"] == "tied_ranges"


@pytest.fixture(scope="module")
def tied_run(run: Run, files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run without improvements."""
    out = tmp_path_factory.mktemp("run") / "out"
    given = [files / "heads.onnx", "-c", files / "tied.toml", "-d", files / "images.npz"]
    quantized = run("quantize", *given, "--effort", 0, "--min-sqnr", 0, "-o", out, "-q")
    assert quantized.exit_code == 0, quantized.stderr
    return out


def _with_other_weights(source: Path, target: Path) -> Path:
    graph = Graph.load(source)
    name = next(name for name in graph.tensor_names() if graph.is_constant(name) and graph.values(name).ndim == 4)
    graph.set_values(name, graph.values(name) * np.float32(1.5))
    graph.save(target)
    return target


def test_a_float_model_that_the_run_was_not_made_of_is_refused(
    run: Run, files: Path, tied_run: Path, tmp_path: Path
) -> None:
    other = _with_other_weights(files / "heads.onnx", tmp_path / "other.onnx")

    result = run("diagnose", tied_run, "--float", other)

    assert result.exit_code == 2
    assert "is not the float model" in result.stderr
    assert "other.onnx" in result.stderr


@pytest.mark.parametrize("name", ["model_float.onnx", "a_float.onnx"])
def test_a_float_model_that_another_run_has_left_is_not_taken(
    name: str, run: Run, files: Path, tied_run: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(tied_run, out)
    _with_other_weights(files / "heads.onnx", out / name)

    alone = run("diagnose", out)
    assert alone.exit_code == 2
    assert "--float MODEL" in alone.stderr
    assert run("diagnose", out, "--float", files / "heads.onnx", "-q").exit_code == 0


def test_the_float_model_beside_the_run_is_taken_where_the_given_one_does_not_fit(
    run: Run, files: Path, tied_run: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(tied_run, out)
    shutil.copy(files / "heads.onnx", out / "model_float.onnx")
    other = _with_other_weights(files / "heads.onnx", tmp_path / "other.onnx")

    result = run("diagnose", out, "--float", other, "--json")

    assert result.exit_code == 0, result.stderr
    assert "is taken instead of" in " ".join(result.stderr.split())
    assert json.loads(result.stdout)["causes"][0]["code"] == "tied_ranges"


def test_a_folder_without_its_float_model_says_how_to_give_it(run: Run, finished: Path) -> None:
    result = run("diagnose", finished)

    assert result.exit_code == 2
    assert "--float MODEL" in result.stderr


def test_a_folder_that_is_no_run_is_refused(run: Run, tmp_path: Path) -> None:
    result = run("diagnose", tmp_path, "--float", tmp_path / "model.onnx")

    assert result.exit_code == 2
    assert "plan.json" in result.stderr


def test_a_configuration_has_a_suffix_that_tells_its_kind(run: Run, files: Path) -> None:
    result = run("diagnose", files / "heads.onnx", "-b", "qnn", "-d", files / "images.npz", "--apply", files / "x.txt")

    assert result.exit_code == 2
    assert ".toml or .json" in result.stderr


def test_nothing_is_written_where_nothing_pays(run: Run, model: Path, data: Path, tmp_path: Path) -> None:
    target = tmp_path / "fixed.json"
    result = run("diagnose", model, "-b", "onnxruntime", "-d", data, "--apply", target)

    assert result.exit_code == 0, result.stderr
    assert target.exists() != ("no configuration written" in result.stderr)


@pytest.mark.parametrize("command", ["quantize", "diagnose"])
def test_the_commands_tell_of_each_other(command: str, run: Run) -> None:
    result = run(command, "--help")

    assert result.exit_code == 0
    assert "diagnose" in result.stdout
