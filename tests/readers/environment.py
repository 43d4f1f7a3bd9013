"""What the tests of real readers share: their environments, the run of a check, and the figures that are kept."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tools.readers.catalogue import READERS
from tools.readers.environments import clean_variables, python_of, readers_folder, state
from tools.readers.results import RESULTS_VARIABLE, Finding, figure_text

ROOT = Path(__file__).resolve().parents[2]


def reader_python(name: str) -> Path:
    """The interpreter of a reader's environment; a test that needs one which is not there is skipped."""
    found = state(READERS[name], readers_folder())
    if found != "ready":
        pytest.skip(f"the environment of reader '{name}' is {found}: python -m tools.readers install {name}")
    return python_of(readers_folder() / name)


def run_check(name: str, *arguments: str | Path, timeout: float = 600, script: str = "check.py") -> dict[str, Any]:
    """Run a script of tools/readers/NAME in the reader's environment; the answer is the last line of its stdout."""
    command = [str(reader_python(name)), str(READERS[name].check.with_name(script)), *map(str, arguments)]
    variables = clean_variables() | ({"PYTHONPATH": str(ROOT)} if READERS[name].runs_onnxq else {})
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=timeout)
    if done.returncode:
        pytest.fail(f"the check of '{name}' ended with exit code {done.returncode}:\n{_tail(done.stderr)}")
    lines = done.stdout.strip().splitlines()
    try:
        answer = json.loads(lines[-1] if lines else "")
    except json.JSONDecodeError:
        pytest.fail(f"the last line of the check of '{name}' is not JSON:\n{_tail(done.stdout)}")
    assert isinstance(answer, dict), f"the check of '{name}' answered {type(answer).__name__}, not an object"
    return answer


def record(reader: str, version: str, target: str, model: str, what: str, figure: float | int | str) -> None:
    """Keep a figure for the table of docs/backends.md, where the variable for it names a folder."""
    assert reader in READERS, f"'{reader}' is no reader: {', '.join(READERS)}"
    folder = os.environ.get(RESULTS_VARIABLE)
    if folder:
        Finding(reader, version, target, model, what, figure_text(figure)).append_to(Path(folder))


def _tail(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-30:])
