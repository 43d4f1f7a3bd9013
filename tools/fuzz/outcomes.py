"""How a command ended, and what that means: good, or a fault of onnxq."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from enum import Enum

from tools.fuzz.hostile import FORGED_LINE


class Outcome(Enum):
    OK = "ok"
    REFUSED = "refused"
    CHECK_FAILED = "check failed"
    TRACEBACK = "TRACEBACK"
    CRASH = "CRASH"
    HANG = "HANG"
    SILENT = "SILENT"
    LEFTOVERS = "LEFTOVERS"
    WROTE_BAD = "WROTE BAD"
    ESCAPES = "ESCAPES"
    RAN_CODE = "RAN CODE"
    WRONG_USE = "WRONG USE"

    @property
    def good(self) -> bool:
        return self in (Outcome.OK, Outcome.REFUSED, Outcome.CHECK_FAILED)


ABOUT = {
    Outcome.OK: "exit 0, and the written model loads in onnxruntime",
    Outcome.REFUSED: "exit 2 with an error: line",
    Outcome.CHECK_FAILED: "exit 1 with a reason",
    Outcome.TRACEBACK: "an exception that nobody caught, or an exit code that is not documented",
    Outcome.CRASH: "ended by a signal",
    Outcome.HANG: "used more processor time than it may, or stood still",
    Outcome.SILENT: "an exit code other than 0 without a word",
    Outcome.LEFTOVERS: "files left behind by a run that failed, or temporary ones by any run",
    Outcome.WROTE_BAD: "exit 0, but onnxruntime does not load what was written",
    Outcome.ESCAPES: "control characters of a name, or a line forged by one, in the output",
    Outcome.RAN_CODE: "a file of data made onnxq run a Python file that it named",
    Outcome.WRONG_USE: "the fuzzer itself failed, or gave arguments that the command does not have",
}


@dataclass(frozen=True)
class Ended:
    """What is known about a process that has ended. `code` is None where a signal ended it."""

    code: int | None
    signal: int | None = None
    stdout: str = ""
    stderr: str = ""
    out_of_time: bool = False
    cpu_seconds: float = 0.0
    leftovers: tuple[str, ...] = ()
    does_not_load: str = ""
    ran_code: bool = False
    fuzzer_error: str = ""


TRACEBACK = "Traceback (most recent call last)"
TIME_SIGNALS = (signal.SIGXCPU,)

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""What changes a terminal, without newline and tab. Nothing of it belongs into output that goes into a file."""


def classify(ended: Ended) -> Outcome:
    """The worst that can be said about the end of a process."""
    if ended.fuzzer_error:
        return Outcome.WRONG_USE
    if ended.ran_code:
        return Outcome.RAN_CODE
    if ended.out_of_time or ended.signal in TIME_SIGNALS:
        return Outcome.HANG
    if ended.signal is not None:
        return Outcome.CRASH
    if TRACEBACK in ended.stderr or TRACEBACK in ended.stdout or ended.code not in (0, 1, 2):
        return Outcome.TRACEBACK
    has_error = any(line.startswith("error:") for line in ended.stderr.splitlines())
    if ended.code == 2 and not has_error:
        return Outcome.WRONG_USE if "Usage:" in ended.stderr else Outcome.SILENT
    if ended.code == 1 and not (ended.stderr.strip() or ended.stdout.strip()):
        return Outcome.SILENT
    if ended.does_not_load:
        return Outcome.WROTE_BAD
    if ended.leftovers:
        return Outcome.LEFTOVERS
    if forged(ended.stdout) or forged(ended.stderr):
        return Outcome.ESCAPES
    return {0: Outcome.OK, 1: Outcome.CHECK_FAILED, 2: Outcome.REFUSED}[ended.code]


def forged(text: str) -> bool:
    """Whether a name has got out of its line, or to the terminal as it is."""
    return _CONTROL.search(text) is not None or any(line.startswith(FORGED_LINE) for line in text.split("\n"))
