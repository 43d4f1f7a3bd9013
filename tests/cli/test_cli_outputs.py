"""Where `calibrate` and `merge` write: never over something else, and under the name that the user would expect."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from onnxq.cli.app import app
from onnxq.demo import load_data, model_path


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.onnx").write_bytes(model_path().read_bytes())
    np.savez(tmp_path / "data.npz", image=load_data().calibration[:6])
    return tmp_path


def run(command: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, command.split(), prog_name="onnxq")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stderr


CALIBRATE = "calibrate model.onnx -b onnxruntime -d data.npz"


def test_a_device_is_not_replaced(here: Path) -> None:
    os.mkfifo(here / "pipe.json")
    code, said = run(f"{CALIBRATE} -o pipe.json")
    assert (code, "no regular file" in said) == (2, True)
    assert not (here / "pipe.json").is_file()


def test_a_link_stays_and_what_it_points_to_is_written(here: Path) -> None:
    (here / "store").mkdir()
    (here / "q.json").symlink_to("store/real.json")
    assert run(f"{CALIBRATE} -o q.json")[0] == 0
    assert (here / "q.json").is_symlink()
    assert json.loads((here / "store" / "real.json").read_text())


def test_parameters_cannot_have_the_name_of_the_plan(here: Path) -> None:
    code, said = run(f"{CALIBRATE} -o plan.json")
    assert (code, "give these another name" in said) == (2, True)
    assert not (here / "plan.json").exists()


def test_a_name_without_a_suffix_is_a_folder(here: Path) -> None:
    assert run(f"{CALIBRATE} -o results")[0] == 0
    assert sorted(path.name for path in (here / "results").iterdir()) == ["plan.json", "qparams.json"]
    assert not (here / "plan.json").exists()


@pytest.mark.parametrize("command", [f"{CALIBRATE} -o q.txt", "merge a.npz b.npz -o merged.json"])
def test_another_suffix_is_refused(here: Path, command: str) -> None:
    code, said = run(command)
    assert (code, "give a name that ends in" in said) == (2, True)


def test_an_edited_plan_is_kept_aside(here: Path) -> None:
    assert run(f"{CALIBRATE} -o q.json")[0] == 0
    plan = json.loads((here / "plan.json").read_text())
    plan["left_float"] = {"edited": "by hand"}
    (here / "plan.json").write_text(json.dumps(plan))
    code, said = run(f"{CALIBRATE} -o q.json")
    assert (code, "plan.previous.json" in said) == (0, True)
    assert json.loads((here / "plan.previous.json").read_text()) == plan


def test_an_array_under_another_name_is_taken_with_a_note(here: Path) -> None:
    np.savez(here / "other.npz", img=load_data().calibration[:6])
    code, said = run("calibrate model.onnx -b onnxruntime -d other.npz -o q.json")
    assert (code, "is called 'img'; it is taken for input 'image'" in said) == (0, True)


@pytest.mark.parametrize("option", ["--samples 3", "--workers 1", "--memory-limit 1GB", "--provider cpu"])
def test_options_about_runs_are_refused_where_nothing_runs(here: Path, option: str) -> None:
    assert run(f"{CALIBRATE} -o stats.npz")[0] == 0
    code, said = run(f"calibrate model.onnx -b onnxruntime --stats stats.npz {option} -o q.json")
    assert (code, option.split()[0] in said) == (2, True)


def test_missing_statistics_are_named(here: Path) -> None:
    code, said = run("calibrate model.onnx -b onnxruntime --stats none.npz -o q.json")
    assert (code, "no statistics at none.npz" in said) == (2, True)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("def f(): raise ValueError('boom')", "function 'f' failed: ValueError: boom (.*mod.py, line 1)"),
        ("def f():\n    yield {}['x']", "function 'f', element 0, failed: KeyError: 'x' (.*mod.py, line 2)"),
        ("def f(a): return a", "function 'f' failed: TypeError"),
    ],
)
def test_errors_in_the_users_function_are_one_sentence(
    here: Path, body: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"mod{abs(hash(body))}"
    (here / f"{name}.py").write_text(body)
    code, text = run(f"calibrate model.onnx -b onnxruntime -d {name}:f -o q.json")
    assert code == 2
    assert said.split(" (")[0] in text
    assert "Traceback" not in text


def test_a_full_disk_is_reported_with_the_file(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*names: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("onnxq.files.os.replace", full)
    code, said = run(f"{CALIBRATE} -o q.json")
    assert (code, "q.json: No space left on device" in said) == (2, True)
    assert [path.name for path in here.iterdir() if path.name.startswith(".")] == []


def test_a_tensor_above_the_memory_limit_is_noted(here: Path) -> None:
    code, said = run(f"{CALIBRATE} -o q.json --memory-limit 1KB --workers 1")
    assert (code, "the memory limit is exceeded" in said) == (0, True)
