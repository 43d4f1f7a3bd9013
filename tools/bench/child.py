"""Runs one job of a peer, or of onnxq, in a fresh process of a given interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ONNXQ = "tools.bench.onnxq_jobs"
MOST_MEMORY = 0.8
"""Share of the machine's memory that a tool may take before its allocations fail."""


class ChildFailed(RuntimeError):
    """The process ended with an error or took too long; the message is its last line."""


@dataclass(frozen=True)
class Outcome:
    """`cpu` are the seconds of all threads together; 0 for jobs that do not tell."""

    seconds: float
    peak_mb: float
    cpu: float = 0.0


def _outcome(line: str) -> Outcome | None:
    """What a line says, if it is one of the protocol and whole."""
    try:
        found = json.loads(line)
        return Outcome(float(found["seconds"]), float(found["peak_mb"]))
    except (ValueError, TypeError, KeyError):
        return None


@dataclass(frozen=True)
class Climbed:
    """The files that were written, in order, and why there are not more of them."""

    outcomes: list[Outcome]
    failure: ChildFailed | None


@dataclass(frozen=True)
class Tool:
    """A module of jobs and the interpreter that has what it needs."""

    module: str
    python: str = sys.executable
    timeout: float = 1800.0

    def describe(self) -> tuple[list[str], str]:
        """The methods of the tool, and its version."""
        found = self._run(["--list"])
        return list(found["methods"]), str(found["version"])

    def run(self, method: str, model: Path, samples: str, count: int, *, lazy: bool = False) -> Outcome:
        limit = int(MOST_MEMORY * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
        arguments = [method, str(model), samples, str(count), "--memory-limit", str(limit)]
        found = self._run([*arguments, "--lazy"] if lazy else arguments)
        return Outcome(float(found["seconds"]), float(found["peak_mb"]))

    def settings(self) -> tuple[dict[str, list[str]], str]:
        """Number format -> the settings with which the tool writes files of it; and its version."""
        found = self._run(["--list"])
        return {name: list(settings) for name, settings in found["writers"].items()}, str(found["version"])

    def write(self, form: str, setting: str, model: Path, feeds: Path, result: Path) -> Outcome:
        """One quantized file, from the samples in `feeds` (see `samples.save_feeds`)."""
        found = self._run(["--write", form, setting, str(model), str(feeds), str(result)])
        if not result.exists():
            raise ChildFailed("the tool ended without an error and without a file")
        return Outcome(float(found["seconds"]), float(found["peak_mb"]), float(found["cpu_seconds"]))

    def climb(self, form: str, settings: Sequence[str], model: Path, feeds: Path, folder: Path) -> Climbed:
        """A file for each setting, 0.onnx, 1.onnx ... in `folder`, each going on from the one before.

        What was done before a failure is told with it.
        """
        printed, failure = self._finish(["--climb", form, ";".join(settings), str(model), str(feeds), str(folder)])
        found = [_outcome(line) for line in printed.splitlines()]
        return Climbed([outcome for outcome in found if outcome is not None], failure)

    def _run(self, arguments: list[str]) -> dict[str, Any]:
        printed, failure = self._finish(arguments)
        if failure is not None:
            raise failure
        # Some tools are chatty or report usage: what they print is read for the last line alone.
        return dict(json.loads(printed.splitlines()[-1]))

    def _finish(self, arguments: list[str]) -> tuple[str, ChildFailed | None]:
        """What the process has printed, and why it ended if that was not well."""
        command = [self.python, "-m", self.module, *arguments]
        try:
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=self.timeout)
        except subprocess.TimeoutExpired as error:
            printed = error.stdout or b""  # bytes, although text was asked for
            text = printed.decode() if isinstance(printed, bytes) else printed
            return text, ChildFailed(f"stopped after {self.timeout:g} s")
        except OSError as error:
            return "", ChildFailed(f"the interpreter cannot be started: {error.strerror}")
        if done.returncode != 0:
            lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
            return done.stdout, ChildFailed(lines[-1] if lines else f"ended with code {done.returncode}")
        return done.stdout, None
