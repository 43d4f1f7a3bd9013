"""Runs the tests of the readers and turns the figures that they record into the table of docs/backends.md."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.bench.results import PACKAGES, machine_facts
from tools.readers.environments import ReaderError
from tools.readers.results import RESULTS_VARIABLE, findings_table, read_findings, with_table

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "backends.md"


def report(results: Path | None, page: Path = PAGE, run: bool = True) -> None:
    """Write the table into the page; a failing test or a result folder without figures leaves the page alone."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = (results or Path(temporary)).absolute()
        if run:
            run_tests(folder)
        findings = read_findings(folder)
        if not findings:
            raise ReaderError(f"no figures in {folder}: install readers first, see `python -m tools.readers list`")
        facts = machine_facts()
        versions = [f"{name} {facts[name]}" for name in PACKAGES] + [f"instructions {facts['instructions']}"]
        page.write_text(with_table(page.read_text(encoding="utf-8"), findings_table(findings, versions)), "utf-8")


def run_tests(folder: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-m", "readers", "-rs", str(ROOT / "tests" / "readers")]
    # The lines of pytest go to stderr: stdout of a command is for its result.
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, RESULTS_VARIABLE: str(folder)}, stdout=sys.stderr)
    if done.returncode:
        raise ReaderError(f"the tests of the readers ended with exit code {done.returncode}; the page is unchanged")
