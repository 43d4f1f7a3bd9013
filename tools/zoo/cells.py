"""One cell of the table: `onnxq quantize` as a user calls it, then an independent look at what it wrote."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tools.bench.samples import Feed
from tools.zoo.boxes import Outputs
from tools.zoo.measure import DoesNotRun, decibels, outputs_of, worst
from tools.zoo.model import ZooModel
from tools.zoo.packages import Cache, Unavailable, sha256
from tools.zoo.refusals import rate_refusal, reason_of
from tools.zoo.verdicts import Cell, Key, Verdict, rate_accuracy

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Budget:
    """Samples of a cell, and its seconds of processor time: what else runs on the machine does not count."""

    calibration: int
    held: int
    seconds: float


BUDGETS = {0: Budget(16, 16, 300.0), 1: Budget(32, 24, 1800.0)}
DEFAULT_EFFORT = 1
POLL_SECONDS = 2.0
MOST_WAITING = 12
"""Times the budget in seconds of a clock, for a process that hangs."""

LONGER = Budget(32, 24, 7200.0)
"""Of efforts above the default."""


def budget_of(effort: int) -> Budget:
    return BUDGETS.get(effort, LONGER)


@dataclass(frozen=True)
class Ended:
    """`exit_code` is None where the time was over."""

    exit_code: int | None
    printed: str
    said: str
    seconds: float


@dataclass
class Bench:
    """One model with its samples, which all its cells share; the folder is scratch."""

    model: ZooModel
    cache: Cache
    folder: Path
    code: str
    file: Path = field(init=False)
    sha256: str = field(init=False)
    _feeds: dict[int, list[Feed]] = field(default_factory=dict, init=False)
    _before: dict[int, list[Outputs]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.file = self.model.file(self.cache)
        self.sha256 = sha256(self.file)

    def prepare(self, budget: Budget) -> None:
        """Calibration samples as files, held samples and what the float model makes of them."""
        if budget.held in self._feeds:
            return
        seen, unseen = self.model.samples(self.cache, budget.calibration, budget.held)
        folder = self.calibration(budget)
        folder.mkdir(parents=True)
        for number, feed in enumerate(seen):
            np.savez(folder / f"{number:04}.npz", **feed)  # type: ignore[arg-type]
        self._before[budget.held] = outputs_of(self.file, unseen)
        self._feeds[budget.held] = unseen

    def calibration(self, budget: Budget) -> Path:
        return self.folder / f"calibration-{budget.calibration}"

    def run(self, target: str, effort: int) -> Cell:
        budget = budget_of(effort)
        key = Key(self.sha256, target, effort, self.code)
        try:
            self.prepare(budget)
        except Unavailable as error:
            return Cell(self.model.name, key, Verdict.UNAVAILABLE, reason=f"samples: {error}")
        except DoesNotRun as error:
            return Cell(self.model.name, key, Verdict.GATE_FAULT, reason=f"the float model: {error}")
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            out = Path(scratch) / "out"
            ended = run_quantize(self.file, target, self.calibration(budget), out, effort, budget.seconds)
            return self._rated(key, ended, out, budget)

    def _rated(self, key: Key, ended: Ended, out: Path, budget: Budget) -> Cell:
        name, seconds = self.model.name, round(ended.seconds, 1)
        reason = reason_of(ended.said)
        if ended.exit_code is None:
            text = f"not ended after {budget.seconds:.0f} s"
            return Cell(name, key, Verdict.TIME_OUT, reason=text, seconds=seconds)
        if ended.exit_code:
            verdict = rate_refusal(ended.exit_code, reason)
            return Cell(name, key, verdict, ended.exit_code, reason=reason, seconds=seconds)
        before = self._before[budget.held]
        try:
            after = outputs_of(out / "model.onnx", self._feeds[budget.held])
            ratios = decibels(self.model, before, after)
        except DoesNotRun as error:
            return Cell(name, key, Verdict.UNUSABLE_FILE, 0, reason=str(error)[:600], seconds=seconds)
        agreement = self.model.decision(before, after) if self.model.decision else None
        lowest = worst(ratios)
        return Cell(
            name,
            key,
            rate_accuracy(lowest[1] if lowest else None, agreement),
            0,
            lowest[0] if lowest else None,
            lowest[1] if lowest else None,
            reported(ended.printed),
            agreement,
            seconds=seconds,
            samples=len(before),
        )


def quantize_command(model: Path, target: str, data: Path, out: Path, effort: int) -> list[str]:
    return [
        sys.executable,
        "-m",
        "onnxq",
        "quantize",
        str(model),
        "-b",
        target,
        "-d",
        str(data),
        "-o",
        str(out),
        "--effort",
        str(effort),
        "--json",
    ]


def run_quantize(model: Path, target: str, data: Path, out: Path, effort: int, seconds: float) -> Ended:
    command = quantize_command(model, target, data, out, effort)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    started = time.monotonic()
    with subprocess.Popen(
        command,
        cwd=out.parent,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        code: int | None = None
        try:
            while True:
                try:
                    printed, said = process.communicate(timeout=min(POLL_SECONDS, seconds))
                    code = process.returncode
                    break
                except subprocess.TimeoutExpired:
                    waited = time.monotonic() - started
                    if processor_seconds(process.pid) > seconds or waited > MOST_WAITING * seconds:
                        _end(process)
                        printed, said = process.communicate()
                        break
        except BaseException:
            _end(process)
            raise
    return Ended(code, printed, said, time.monotonic() - started)


def processor_seconds(group: int) -> float:
    """What the processes of a group, and those of them that have ended, have used; 0 where the system does not say."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        if int(fields[2]) == group:
            ticks += sum(int(field) for field in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def _end(process: subprocess.Popen[str]) -> None:
    """The command and what it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        process.kill()


def reported(printed: str) -> float | None:
    """The lowest figure of outputs and parts in onnxq's own report."""
    try:
        report: dict[str, Any] = json.loads(printed)
    except json.JSONDecodeError:
        return None
    figures: list[float] = []
    for output in report.get("checks", {}).get("outputs", []):
        figures += [
            value for value in (output.get("sqnr_db"), *output.get("parts_db", {}).values()) if _is_number(value)
        ]
    return min(figures, default=None)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def targets(named: Sequence[str]) -> list[str]:
    """All targets that onnxq lists, or the named ones."""
    if named:
        return list(named)
    ended = subprocess.run(
        [sys.executable, "-m", "onnxq", "list", "backends", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [backend["name"] for backend in json.loads(ended.stdout)]
