"""Commands and output folders that are written by somebody else, were left by a kill, or have something in the way."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from onnxq.files import write_json
from onnxq.output_folder import STAGE, claim
from onnxq.switch import COMMIT


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.fixture
def cut_off(tmp_path: Path, finished: Path) -> Path:
    """A folder whose run was killed between two moves: the report is new, the other files are still old."""
    out = tmp_path / "out"
    out.mkdir()
    names = sorted(path.name for path in finished.iterdir())
    for name in names:
        (out / name).write_text("old")
    stage = out / f"{STAGE}abcd1234"
    shutil.copytree(finished, stage / "new")
    (stage / "old").mkdir()
    write_json(stage / COMMIT, {"moves": [{"name": name, "replaces": True} for name in names]})
    os.link(out / "report.json", stage / "old" / "report.json")
    os.replace(stage / "new" / "report.json", out / "report.json")
    return out


@pytest.mark.parametrize(
    "command",
    [
        "explain {out} *conv*",
        "explain {out}/plan.json *conv*",
        "diff {out} {out}",
        "evaluate {model} {out} -d {data} --samples 1",
        "lint {out}/model.onnx -b onnxruntime",
        "inspect {out}/model.onnx",
        "compare {model} {out} -d {data} --samples 1",
        "simulate {model} --plan {out} -o {elsewhere}/simulated.onnx",
        "emit {model} --plan {out}/plan.json --qparams {out}/qparams.json -o {elsewhere}/files",
        "place {model} -c {out}/config.json",
    ],
)
def test_a_command_that_reads_finishes_what_was_cut_off(
    run, model: Path, data: Path, finished: Path, cut_off: Path, tmp_path: Path, command: str
) -> None:
    words = command.format(out=cut_off, model=model, data=data, elsewhere=tmp_path / "elsewhere").split()
    result = run(*words)
    assert result.exit_code == 0, result.stderr
    assert content(cut_off) == content(finished)
    assert {path.name for path in cut_off.iterdir()} == {path.name for path in finished.iterdir()}


def test_a_second_run_into_the_same_folder_is_refused_before_any_work(
    run, model: Path, data: Path, finished: Path, tmp_path: Path
) -> None:
    out = shutil.copytree(finished, tmp_path / "out")
    for command in (
        f"quantize {model} -b onnxruntime -d {data} -o {out}",
        f"emit {model} --plan {finished} --qparams {finished} -o {out}",
        f"calibrate {model} -b onnxruntime -d {data} -o {out}",
        f"search {model} -b academic -d {data} --bits 8,4 --budget weights=6bits -o {out}",
        f"demo -o {out}",
    ):
        with claim(out):
            result = run(*command.split())
        assert result.exit_code == 2, (command, result.stderr)
        assert result.stderr.splitlines()[-1] == (
            f"error: another onnxq (process {os.getpid()}) is writing into {out}: wait until it has ended, or choose "
            "another place with -o"
        )
    assert content(out) == content(finished)
    assert {path.name for path in out.iterdir()} == set(content(finished))


@pytest.mark.parametrize("name", ["plan.json", "report.json", "model.onnx"])
def test_a_folder_in_place_of_a_file_is_refused_and_nothing_is_changed(
    run, model: Path, data: Path, finished: Path, tmp_path: Path, name: str
) -> None:
    out = shutil.copytree(finished, tmp_path / "out")
    (out / name).unlink()
    (out / name).mkdir()
    before = content(out)
    result = run("quantize", model, "-b", "onnxruntime", "-d", data, "--effort", 0, "-o", out)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith(f"error: {out / name} is a folder, and a file of that name is to")
    assert content(out) == before
    assert {path.name for path in out.iterdir()} == {*before, name}


def test_calibrate_writes_parameters_and_plan_together(run, model: Path, data: Path, tmp_path: Path) -> None:
    (tmp_path / "plan.json").mkdir()
    result = run("calibrate", model, "-b", "onnxruntime", "-d", data, "-o", tmp_path / "qparams.json")
    assert result.exit_code == 2
    assert "plan.json is a folder, and a file of that name is to be written" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_memory_that_is_missing_is_told_without_a_traceback(run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_much(*_: object) -> None:
        raise MemoryError("Unable to allocate 4.00 TiB")

    monkeypatch.setattr("onnxq.cli.facts.model_facts", too_much)
    result = run("inspect", model)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: there is not enough memory: Unable to allocate 4.00 TiB")
