"""Findings: bad ends of the same cause put together, by the innermost line of onnxq that was running."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import PurePath

from tools.fuzz.cases import Case
from tools.fuzz.outcomes import TRACEBACK, Ended, Outcome

_FRAME = re.compile(r'File "([^"]+)", line (\d+),? in (.+)')
_EXCEPTION = re.compile(r"([A-Za-z_][\w.]*)(?:: .*|:)?$")
"""The last line of a traceback: the one that is not indented, a name with or without words."""
PACKAGE = "onnxq"


@dataclass(frozen=True)
class Cause:
    """What tells findings apart. `where` is "file.py:line function", or the command where no line is known."""

    outcome: Outcome
    where: str
    what: str


@dataclass
class Finding:
    cause: Cause
    message: str
    cases: list[Case] = field(default_factory=list)


def cause_of(case: Case, ended: Ended, outcome: Outcome) -> tuple[Cause, str]:
    """The cause of a bad end, and the words that go with it."""
    text = ended.stderr if TRACEBACK in ended.stderr or outcome is not Outcome.TRACEBACK else ended.stdout
    if outcome is Outcome.WRONG_USE:
        text = ended.fuzzer_error or ended.stderr
        return Cause(outcome, case.command, _exception(text)[0]), text.strip()[-300:]
    if outcome is Outcome.TRACEBACK:
        what, message = _exception(text)
        return Cause(outcome, _last_frame(text.rpartition(TRACEBACK)[2]) or case.command, what), message
    if outcome in (Outcome.CRASH, Outcome.HANG):
        what = f"signal {ended.signal}" if outcome is Outcome.CRASH else ""
        where = _first_frame(text) or case.command
        if outcome is Outcome.HANG:  # a loop is one finding, whichever of its lines was running
            where = re.sub(r":\d+ ", " ", where)
        return Cause(outcome, where, what), f"{ended.cpu_seconds:.1f} s of processor time"
    if outcome is Outcome.WROTE_BAD:
        return Cause(outcome, case.target.partition(":")[0], _shape(ended.does_not_load)), ended.does_not_load
    if outcome is Outcome.LEFTOVERS:
        names = ", ".join(ended.leftovers[:5])
        return Cause(outcome, case.command, _shape(names)), names
    return Cause(outcome, case.command, ""), (ended.stderr or ended.stdout).strip()[-300:]


def collect(bad: Iterable[tuple[Case, Ended, Outcome]]) -> list[Finding]:
    """Findings, those with most cases first."""
    found: dict[Cause, Finding] = {}
    for case, ended, outcome in bad:
        cause, message = cause_of(case, ended, outcome)
        found.setdefault(cause, Finding(cause, message)).cases.append(case)
    return sorted(found.values(), key=lambda finding: (finding.cause.outcome.value, -len(finding.cases)))


def _own_frames(text: str) -> list[str]:
    frames = []
    for path, line, function in _FRAME.findall(text):
        parts = PurePath(path).parts
        if PACKAGE in parts and "site-packages" not in parts:
            last = len(parts) - 1 - parts[::-1].index(PACKAGE)
            if parts[last + 1] not in ("tools", "tests"):  # a clone may be called like the package
                frames.append(f"{'/'.join(parts[last:])}:{line} {function}")
    return [frame for frame in frames if not frame.startswith(f"{PACKAGE}/cli/__init__.py")]


def _last_frame(text: str) -> str | None:
    frames = _own_frames(text)
    return frames[-1] if frames else None


def _first_frame(text: str) -> str | None:
    """faulthandler prints the innermost line first."""
    frames = _own_frames(text)
    return frames[0] if frames else None


def _exception(text: str) -> tuple[str, str]:
    for line in reversed(text.splitlines()):
        if (match := _EXCEPTION.match(line)) is not None:
            return match[1], line[:300]
    return "", text.strip()[-300:]


def _shape(message: str) -> str:
    """A message without what differs from input to input: quoted names and numbers."""
    short = re.sub(r"'[^']*'|\"[^\"]*\"|\([^()]*\)|[0-9a-f]{6,}|\d+", "_", message.splitlines()[0] if message else "")
    return short[:120]
