"""Every command that an example's README prints works, and the files it names are there afterwards."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.examples.runnable import ROOT, Shell, commands, run_commands

EXAMPLES = sorted(path.parent for path in (ROOT / "examples").glob("*/README.md"))
FILE = re.compile(r"`([\w./-]+\.(?:onnx|npz|json|py|toml|sh|csv|svg))`")

LONG = ("09-train-for-chips", "13-improve-without-training")
"""What takes their time is what they show, so there is no quick way to run them; the slow tests do."""


def test_there_are_examples_and_the_overview_names_each_of_them() -> None:
    overview = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert len(EXAMPLES) >= 4
    assert [folder.name for folder in EXAMPLES if f"({folder.name})" not in overview] == []


@pytest.mark.usefixtures("plugins_forgotten")
@pytest.mark.parametrize(
    ("example", "as_printed"),
    [
        *((folder, False) for folder in EXAMPLES if folder.name not in LONG),
        *(pytest.param(folder, True, marks=pytest.mark.slow) for folder in EXAMPLES),
    ],
    ids=lambda value: value.name if isinstance(value, Path) else "as_printed" if value else "quickly",
)
def test_the_commands_of_an_example_run_and_leave_the_files_it_names(
    example: Path, as_printed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "examples"
    shutil.copytree(ROOT / "examples", copy, ignore=shutil.ignore_patterns("out", "*.onnx", "*.npz", "__pycache__"))
    folder = copy / example.name
    shell = Shell(folder, tmp_path / "bin")
    wanted = commands(folder / "README.md")
    assert wanted
    monkeypatch.chdir(folder)
    run_commands(wanted, shell, as_printed=as_printed)
    named = set(FILE.findall((folder / "README.md").read_text(encoding="utf-8")))
    assert named
    assert sorted(name for name in named if not (folder / name).is_file()) == []
    for path in folder.glob("out/**/report.json"):
        training = json.loads(path.read_text(encoding="utf-8")).get("training")
        assert training is None or training["written"] > training["before"], f"{path}: nothing was gained by training"
