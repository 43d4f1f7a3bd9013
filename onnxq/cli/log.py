"""What a command does, step by step: as lines on stderr with -v, and in the file of --log-file with everything said.

A process runs one command; the options set this up before the command begins.
"""

from __future__ import annotations

import shlex
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import TextIO

from onnxq.errors import ConfigError
from onnxq.escapes import one_line
from onnxq.machine import system_message
from onnxq.version import __version__


class _Log:
    """Where lines go: `verbose` to stderr, `file` to a file; by default nowhere."""

    verbose = False
    file: TextIO | None = None


_LOG = _Log()


def be_verbose(wanted: bool) -> bool:
    """The option -v."""
    _LOG.verbose = wanted
    return wanted


def log_to(path: Path | None) -> Path | None:
    """The option --log-file: lines are added to what the file holds; None ends an earlier one."""
    if _LOG.file is not None:
        _LOG.file.close()
        _LOG.file = None
    if path is not None:
        try:
            _LOG.file = path.open("a", encoding="utf-8", errors="backslashreplace", buffering=1)
        except OSError as error:
            raise ConfigError(f"--log-file: {system_message(error)}") from None
        note("start", f"onnxq {__version__}: {shlex.join(sys.argv[1:])}")
    return path


def wanted() -> bool:
    """Whether anybody wants to know of stages."""
    return _LOG.verbose or _LOG.file is not None


def note(kind: str, text: str) -> None:
    """A line for the file: when, what kind of line, what."""
    if _LOG.file is not None:
        now = datetime.now().astimezone().isoformat(timespec="milliseconds")
        _LOG.file.write(f"{now} {kind} {one_line(text)}\n")


class StageLog:
    """Told of stages as a tracker is, writes a line when one begins and when it has ended."""

    def __init__(self) -> None:
        self._stage: str | None = None
        self._since = 0.0

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        if stage == self._stage:
            return
        self.end()
        self._stage, self._since = stage, time.perf_counter()
        note("stage", f"{stage} begins")

    def end(self) -> None:
        if self._stage is None:
            return
        line = f"{self._stage}: {time.perf_counter() - self._since:.2f} s"
        self._stage = None
        note("stage", line)
        if _LOG.verbose:
            from onnxq.cli.console import say

            say(line)
