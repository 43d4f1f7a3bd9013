"""Code blocks of a Markdown file, and a shell in which `python` and `onnxq` are those of this test run."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from onnxq.cli.app import app
from onnxq.demo import load_data, model_path

ROOT = Path(__file__).resolve().parents[2]
WITH_EFFORT_0 = Path(__file__).with_name("with_effort_0.py")
FILE_LANGUAGES = ("python", "toml", "yaml", "json")

both_ways = pytest.mark.parametrize(
    "as_printed", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["quickly", "as_printed"]
)
"""Commands are run in this process and without improvements, and behind `slow` in a shell as they are printed."""


def blocks(document: Path, language: str) -> list[str]:
    """The fenced blocks of one language, in order."""
    return [text for _, text in _fenced(document, language)]


def _fenced(document: Path, language: str) -> list[tuple[str, str]]:
    """(what stands behind the language, text) of the fenced blocks of one language, in order."""
    text = document.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}(?: ([^\n]+))?\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def commands(document: Path) -> list[str]:
    """The lines of all bash blocks without their prompts."""
    lines = [line for block in blocks(document, "bash") for line in block.splitlines()]
    return [line.removeprefix("$ ") for line in lines if line.strip()]


def named_blocks(document: Path, language: str) -> dict[str, str]:
    """Blocks that are files: the name stands behind the language, or in a comment on the first line, `# toy.py`.

    JSON has no comments, and editors want a comment of their own on the first line of a YAML file. The comment is part
    of the file, so that lines have the numbers that a reader of the document counts.
    """
    found = {}
    for name, block in _fenced(document, language):
        comment = re.match(r"# ([\w-]+\.\w+)\n", block)
        if name or comment is not None:
            found[name or comment[1]] = block
    return found


def named_files(document: Path) -> dict[str, str]:
    """The files that the commands of a document use: its blocks with a name."""
    return {name: text for language in FILE_LANGUAGES for name, text in named_blocks(document, language).items()}


def write_model_and_data(folder: Path) -> None:
    """model.onnx and its data as the documents speak of them: the demo, with fewer images to save time."""
    data = load_data()
    shutil.copy(model_path(), folder / "model.onnx")
    np.savez(folder / "calib.npz", image=data.calibration[:32])
    np.savez(folder / "train.npz", image=data.train_images[:320], labels=data.train_labels[:320])
    np.savez(folder / "test.npz", image=data.test_images[:64], labels=data.test_labels[:64])


def run_here(command: str) -> None:
    """Run an `onnxq` command in this process and the current folder, which saves loading onnxruntime each time."""
    program, *arguments = shlex.split(command)
    assert program == "onnxq"
    for path in Path.cwd().glob("*.py"):  # another test may have imported a file of that name from its own folder
        known = sys.modules.get(path.stem)
        if known is not None and getattr(known, "__file__", None) != str(path):
            del sys.modules[path.stem]
    result = CliRunner().invoke(app, arguments, prog_name="onnxq")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, f"$ {command}\n{result.stdout}{result.stderr}"


def quickly(command: str) -> str:
    """The command without the default's improvements and rounds, which take most of its time and are not what it shows.

    The slow tests run it as it is printed.
    """
    if command.startswith("python "):
        return command.replace("python ", f"python {shlex.quote(str(WITH_EFFORT_0))} ", 1)
    if command.startswith("onnxq bench ") and "--rounds" not in command:
        return f"{command} --rounds 3 --warm-up 1"
    command = re.sub(r" --effort [123]\b", " --effort 0", command)
    improves = command.startswith("onnxq quantize ") and not re.search(r" --(effort|improve)\b", command)
    return f"{command} --effort 0" if improves else command


def run_commands(wanted: Sequence[str], shell: Shell, *, as_printed: bool) -> None:
    """Run commands in the current folder, those of onnxq alone in this process."""
    for command in wanted:
        if command.startswith("onnxq ") and not as_printed and not re.search(r"[|>&;$]", command):
            run_here(quickly(command))
        else:
            shell.run(command if as_printed else quickly(command))


class Shell:
    """Runs commands in a folder; the first that fails fails the test with everything it printed."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder = folder
        programs.mkdir()
        for name, arguments in (("python", ""), ("onnxq", "-m onnxq ")):
            program = programs / name
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments}"$@"\n')
            program.chmod(0o755)
        self.environment = {
            **os.environ,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",  # tests run side by side, and torch's threads would wait for each other
        }

    def run(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
        return done.stdout
