"""The action of GitHub: its inputs reach `onnxq quantize`, its outputs are those of the run, and no input is run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from onnxq.demo import load_data, model_path

ROOT = Path(__file__).resolve().parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
WORKFLOW = yaml.safe_load((ROOT / "examples/github-action/quantize.yml").read_text())
QUANTIZE = next(step for step in ACTION["runs"]["steps"] if step.get("id") == "quantize")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with data, and `onnxq` and `python` of this test run on the path."""
    np.savez(tmp_path / "calib.npz", image=load_data().calibration[:16])
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, module in (("onnxq", ["-m", "onnxq"]), ("python", [])):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {" ".join(module)} "$@"\n')
        (programs / name).chmod(0o755)
    return tmp_path


def run(folder: Path, **inputs: str) -> tuple[subprocess.CompletedProcess[str], dict[str, str], str]:
    """The step as a runner does it: inputs as variables, outputs and the summary in files."""
    given = {name: str(entry.get("default", "")) for name, entry in ACTION["inputs"].items()} | inputs
    variables = {
        name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: given[found[1]], str(value))
        for name, value in QUANTIZE["env"].items()
    }
    files = {name: str(folder / name) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | variables | files | {"PATH": path, "PYTHONPATH": str(ROOT)}
    command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", QUANTIZE["run"]]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    texts = [Path(file).read_text() if Path(file).exists() else "" for file in files.values()]
    return done, dict(line.split("=", 1) for line in texts[0].splitlines()), texts[1]


def test_the_step_quantizes_and_says_what_it_made(folder: Path) -> None:
    done, outputs, summary = run(
        folder,
        model=str(model_path()),
        backend="tensorrt",
        data="calib.npz",
        arguments="--effort=0\n\n--set=name=model\n",
        **{"min-sqnr": "10"},
    )
    assert done.returncode == 0, done.stderr
    assert outputs.keys() == ACTION["outputs"].keys()
    assert (folder / outputs["model"]).is_file()
    assert (folder / outputs["report"]).is_file()
    assert 10 < float(outputs["sqnr"]) < 100
    assert summary.startswith("### onnxq: tensorrt\n```text\n")
    assert "quantized for tensorrt" in summary


@pytest.mark.slow
def test_a_limit_that_is_missed_fails_the_step_and_leaves_the_reason_alone(folder: Path) -> None:
    done, outputs, summary = run(
        folder,
        model=str(model_path()),
        backend="tensorrt",
        data="calib.npz",
        arguments="--effort=0",
        **{"min-sqnr": "90"},
    )
    assert done.returncode != 0
    assert not outputs
    assert not (folder / "quantized").exists()
    assert not list(folder.glob("onnxq-*.txt"))
    assert "90" in summary
    assert "error: " in summary
    assert "error: " in done.stderr


def test_what_stands_in_an_input_is_never_run(folder: Path) -> None:
    done, _, _ = run(
        folder, model="$(touch seen)`touch seen`", backend="tensorrt; touch seen", arguments="'; touch seen"
    )
    assert done.returncode == 2
    assert not (folder / "seen").exists()
    assert not any("${{" in step.get("run", "") for step in ACTION["runs"]["steps"])


def test_every_input_is_used_and_the_example_gives_only_known_ones() -> None:
    steps = (ROOT / "action.yml").read_text().partition("\nruns:\n")[2]
    assert all(f"inputs.{name}" in steps for name in ACTION["inputs"])
    (used,) = (step for step in WORKFLOW["jobs"]["quantize"]["steps"] if "onnxq@" in step.get("uses", ""))
    assert used["with"].keys() <= ACTION["inputs"].keys()
    required = {name for name, entry in ACTION["inputs"].items() if entry.get("required")}
    assert required <= used["with"].keys()
    assert re.findall(r"outputs\.([\w-]+)", str(WORKFLOW)) == ["sqnr"]
