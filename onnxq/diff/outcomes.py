"""What came of two runs: accuracy of outputs and parts, methods that were kept, sizes of files, speed, versions."""

from __future__ import annotations

import filecmp
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from onnxq.diff.changes import Compared, compared
from onnxq.errors import OnnxqError
from onnxq.json_file import JsonMapping, JsonObject
from onnxq.page.content import Run
from onnxq.page.document import read_page
from onnxq.page.verdict import verdict_json
from onnxq.pipeline.artifacts import COMPANIONS, PAGE

Figures = dict[str, object]

FIGURES = ("sqnr_db", "chip_db", "agreement", "decisions", "light")
"""What is compared of a result; decisions as the share of them that is the float model's."""


@dataclass(frozen=True)
class ResultDiff:
    """An output, or a part of it, with its figures in both runs; empty where a run does not have it."""

    output: str
    part: str | None
    before: Figures
    after: Figures

    @property
    def equal(self) -> bool:
        return self.before == self.after

    def to_json(self) -> JsonObject:
        named: JsonObject = {"output": self.output, **({} if self.part is None else {"part": self.part})}
        return {**named, "before": self.before, "after": self.after}


@dataclass(frozen=True)
class FileDiff:
    """A file of the target in both runs; bytes are None where a run has none, `same` says that nothing differs."""

    names: tuple[str | None, str | None]
    bytes: tuple[int | None, int | None]
    same: bool

    def to_json(self) -> JsonObject:
        return {"names": list(self.names), "bytes": list(self.bytes), "same": self.same}


def result_diffs(before: Run, after: Run) -> list[ResultDiff]:
    """Every output and part of either run, in order."""
    first, second = dict(_results(before.report)), dict(_results(after.report))
    return [ResultDiff(*key, first.get(key, {}), second.get(key, {})) for key in dict.fromkeys([*first, *second])]


def _results(report: JsonMapping) -> Iterator[tuple[tuple[str, str | None], Figures]]:
    output = ""
    for row in verdict_json(report)["results"]:
        figures = {name: row[name] for name in FIGURES if name in row}
        if "decisions" in row:
            figures["decisions"] = row["decisions"]["agreement"]
        if not row["part"]:
            output = row["name"]
        yield (output, row["name"] if row["part"] else None), figures


class Tried(StrEnum):
    """What came of a method that was tried, maybe more than once."""

    KEPT = "kept"
    DROPPED = "dropped"


def diff_methods(before: Run, after: Run) -> Compared:
    """Methods that one run has kept and the other has not; those that neither has kept changed nothing."""
    found = compared(_methods(before.report), _methods(after.report))
    changes = tuple(change for change in found.changes if Tried.KEPT in (change.before, change.after))
    return Compared(changes, found.equal + len(found.changes) - len(changes))


def _methods(report: JsonMapping) -> dict[str, object]:
    found: dict[str, object] = {}
    for step in (report.get("improvements") or {}).get("steps", ()):
        if found.get(step["name"]) != Tried.KEPT:
            found[step["name"]] = Tried.KEPT if step["applied"] else Tried.DROPPED
    return found


def speed_of(run: Run) -> dict[str, object]:
    """Milliseconds of a run on the machine that made the files, where onnxruntime is the target."""
    measured = run.report.get("speed") or {}
    return {key: measured[key] for key in ("float_ms", "file_ms", "times_as_fast") if key in measured}


def versions_of(run: Run) -> dict[str, object]:
    """Library -> version; of runs whose report does not say it, that of onnxq, from their page."""
    told = run.report.get("versions")
    if told:
        return dict(told)
    try:
        return {"onnxq": read_page(run.folder / PAGE)["onnxq"]}
    except (OSError, OnnxqError, KeyError):
        return {}


def file_diffs(before: Run, after: Run) -> list[FileDiff]:
    """The files of the target, which go by the same name but for that which the configuration gives the model."""
    first, second = _files(before), _files(after)
    return [_file_diff(first.get(key), second.get(key)) for key in dict.fromkeys([*first, *second])]


def _files(run: Run) -> dict[str, Path]:
    name = str(run.config.get("name", "model"))
    listed = [Path(path).name for path in run.report["files"]]
    held = [run.folder / one for one in listed if one not in (*COMPANIONS, PAGE) and (run.folder / one).is_file()]
    return {path.name.removeprefix(name) if path.name.startswith(name) else f"/{path.name}": path for path in held}


def _file_diff(before: Path | None, after: Path | None) -> FileDiff:
    names = (None if before is None else before.name, None if after is None else after.name)
    sizes = (None if before is None else before.stat().st_size, None if after is None else after.stat().st_size)
    same = before is not None and after is not None and sizes[0] == sizes[1]
    return FileDiff(names, sizes, same and filecmp.cmp(str(before), str(after), shallow=False))
