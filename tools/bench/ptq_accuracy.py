"""What is left of accuracy after quantization without training: every effort of onnxq, and other tools beside it.

Every file is written by its tool in a process of its own, from the same samples, and evaluated here by one function, in
onnxruntime without optimizations: what the file means, whatever the kernels of this processor saturate.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from onnxq.numerics import SqnrAccumulator
from onnxq.runtime.session import Optimize, make_session
from tools.bench.child import ONNXQ, ROOT, ChildFailed, Outcome, Tool
from tools.bench.clock import failure_text
from tools.bench.image_sets import MissingSet
from tools.bench.peers.formats import FORMATS, W8A8, W8A8_PER_TENSOR
from tools.bench.ptq_overview import AT_INPUTS, EQUAL, FLOAT, OWN, TOOLS
from tools.bench.ptq_sets import PTQ_SETS, Outputs, PtqSet
from tools.bench.results import Row, Tables
from tools.bench.samples import Feed, save_feeds

PEERS = {
    "onnxruntime": ("onnxruntime.quantization", "tools.bench.peers.onnxruntime"),
    "nncf": ("NNCF", "tools.bench.peers.nncf"),
    "quark": ("Quark", "tools.bench.peers.quark"),
    "aimet": ("AIMET-ONNX", "tools.bench.peers.aimet"),
}
"""Name of the option -> name in tables, module."""
Progress = Callable[[Tables], None]
RUN_HERE = (W8A8, W8A8_PER_TENSOR)
"""Formats that this processor's integer kernels run, which is evaluated too."""


@dataclass(frozen=True)
class Settings:
    """`efforts` are those of onnxq, `peers` maps names of PEERS to interpreters.

    `settings` are those of the peers to measure, None for all of them.
    """

    cache: Path
    sets: Sequence[str]
    formats: Sequence[str] = FORMATS
    efforts: Sequence[int] = (0, 1, 2, 3)
    peers: Mapping[str, str] = field(default_factory=dict)
    calibration: int = 128
    test: int = 2000
    settings: Sequence[str] | None = None
    timeout: float = 1800.0


@dataclass(frozen=True)
class Evaluator:
    """Scores files of one set against its labels, or against the float model."""

    chosen: PtqSet
    expected: Outputs

    def row(self, model: Path, *, run: bool) -> Row:
        found = outputs(model, self.chosen.test)
        row: Row = {self.chosen.score: self._score(found), "SQNR dB": worst_sqnr(self.expected, found)}
        if run:
            row["SQNR dB, kernels"] = worst_sqnr(self.expected, outputs(model, self.chosen.test, "all"))
        return row

    def _score(self, found: Outputs) -> float:
        labels = self.chosen.answers(self.expected) if self.chosen.labels is None else self.chosen.labels
        return round(100 * float((self.chosen.answers(found) == labels).mean()), 2)


def worst_sqnr(expected: Outputs, found: Outputs) -> float | str:
    """Of the worst floating-point output; outputs are not pooled, one with large numbers would hide the others."""
    sums: dict[int, SqnrAccumulator] = {}
    for wanted, given in zip(expected, found, strict=True):
        for position, (reference, test) in enumerate(zip(wanted, given, strict=True)):
            if reference.dtype.kind == "f":
                sums.setdefault(position, SqnrAccumulator()).add(reference, test)
    worst = min(total.value for total in sums.values())
    return round(worst, 2) if np.isfinite(worst) else EQUAL


def outputs(model: Path, feeds: Sequence[Feed], optimize: Optimize = "none") -> Outputs:
    session = make_session(model, threads=1, optimize=optimize)
    return [session.run(None, feed) for feed in feeds]


def measure(settings: Settings, progress: Progress) -> Tables:
    """`progress` gets all tables after each row: a run takes long, and one that is cut off leaves what it has."""
    tools = {OWN: Tool(ONNXQ, timeout=settings.timeout)}
    for name, python in settings.peers.items():
        tools[PEERS[name][0]] = Tool(PEERS[name][1], python, settings.timeout)
    writers: dict[str, dict[str, list[str]]] = {}
    tables: Tables = {TOOLS: []}
    for name, tool in tools.items():
        try:
            writers[name], version = tool.settings()
            commit = _commit() if name == OWN else ""
            tables[TOOLS].append({"tool": name, "version": " ".join(filter(None, (version, commit)))})
        except ChildFailed as error:
            writers[name] = {}
            tables[TOOLS].append({"tool": name, "note": failure_text(error)})
    for name in settings.sets:
        try:
            chosen = PTQ_SETS[name](settings.cache, settings.calibration, settings.test)
        except MissingSet as error:
            tables[name] = [{"format": "", "note": str(error)}]
            continue
        for row in _rows(chosen, tools, writers, settings):
            print(name, *(f"{key}: {value}" for key, value in row.items() if value != ""), sep="; ", file=sys.stderr)
            tables.setdefault(chosen.name, []).append(row)
            progress(tables)
    return tables


def _commit() -> str:
    """Of onnxq: its figures change from one to the next while the version stays. Empty outside of a repository."""
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return found.stdout.strip()


def _rows(
    chosen: PtqSet, tools: Mapping[str, Tool], writers: Mapping[str, Mapping[str, list[str]]], settings: Settings
) -> Iterator[Row]:
    evaluator = Evaluator(chosen, outputs(chosen.model, chosen.test))
    floating: Row = {"format": FLOAT, "tool": "", "setting": "", **evaluator.row(chosen.model, run=False)}
    evaluated = len(chosen.test) if chosen.labels is None else len(chosen.labels)
    note = f"{len(chosen.calibration)} samples to calibrate with, {evaluated} to evaluate on"
    yield {key: value for key, value in floating.items() if key != "SQNR dB"} | {"note": note}
    with tempfile.TemporaryDirectory() as folder:
        feeds = Path(folder) / "feeds.npz"
        save_feeds(feeds, chosen.calibration)
        for form in settings.formats:
            for name, tool in tools.items():
                known = writers[name].get(form, [])
                if name == OWN:
                    for climbed in _climbs(known, settings):
                        yield from _climbed(evaluator, tool, form, climbed, feeds)
                    continue
                for setting in known:
                    if settings.settings is None or setting in settings.settings:
                        row = _written(evaluator, tool, form, setting, feeds)
                        yield {"format": form, "tool": name, "setting": setting, **row}


def _climbs(known: Sequence[str], settings: Settings) -> Iterator[list[str]]:
    """The efforts of onnxq that were asked for, in growing order, for each target apart."""
    for target in ("", f"{AT_INPUTS}, "):
        wanted = [f"{target}effort {effort}" for effort in sorted(settings.efforts)]
        found = [setting for setting in wanted if setting in known]
        if found:
            yield found


def _climbed(evaluator: Evaluator, tool: Tool, form: str, settings: Sequence[str], feeds: Path) -> Iterator[Row]:
    """A row for each effort, out of one run."""
    with tempfile.TemporaryDirectory() as folder:
        climbed = tool.climb(form, settings, evaluator.chosen.model, feeds, Path(folder))
        for number, setting in enumerate(settings):
            row: Row = {"format": form, "tool": OWN, "setting": setting}
            try:
                if number >= len(climbed.outcomes):
                    raise climbed.failure or ChildFailed("there is no file")
                yield row | _evaluated(evaluator, form, Path(folder) / f"{number}.onnx", climbed.outcomes[number])
            except Exception as error:  # what is wrong with a file is the result of its row
                yield row | {"note": failure_text(error)}


def _written(evaluator: Evaluator, tool: Tool, form: str, setting: str, feeds: Path) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "quantized.onnx"
        try:
            outcome = tool.write(form, setting, evaluator.chosen.model, feeds, result)
            return _evaluated(evaluator, form, result, outcome)
        except Exception as error:  # whatever a tool raises is the result of its row
            return {"note": failure_text(error)}


def _evaluated(evaluator: Evaluator, form: str, result: Path, outcome: Outcome) -> Row:
    row = evaluator.row(result, run=form in RUN_HERE)
    size = result.stat().st_size / 1e6
    if row["SQNR dB"] == EQUAL:
        row["note"] = "nothing was quantized"
    seconds = round(outcome.seconds, 1 if outcome.seconds >= 1 else 3)  # small models take less than a tenth
    return {**row, "seconds": seconds, "peak MB": round(outcome.peak_mb), "file MB": round(size, 2)}
