"""All that a page holds, put together from the values of a run."""

from __future__ import annotations

import csv
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from onnxq.emit import EMITTERS
from onnxq.json_file import JsonMapping, JsonObject, read_object
from onnxq.page.document import FORM
from onnxq.page.verdict import verdict_json
from onnxq.pipeline.artifacts import FLOAT_MODEL, PAGE, REMEDY, REPORT
from onnxq.pipeline.further_commands import bench_command, given_to, report_command
from onnxq.pipeline.vendor_steps import vendor_steps
from onnxq.ptq.search.evaluator import AGAINST_FLOAT
from onnxq.types import Backend, QParamsTable, QuantPlan
from onnxq.types.note import Note, folded
from onnxq.version import __version__

TRAINING, SCALES, FRONT, HELD = "training.csv", "scales.csv", "front.json", "hold.json"

MOST_SCALES = 500
"""Tensors whose scales a page draws over time, those that moved most; scales.csv has all of them."""

MOST_REMARKS = 500
"""Notes that a page holds; report.json has all of them."""


@dataclass(frozen=True)
class Run:
    """The documents of a run, and where its files lie.

    folder   the one that holds the files now; `report` may name another, to which they are about to move
    """

    report: JsonMapping
    config: JsonMapping
    plan: QuantPlan
    qparams: QParamsTable
    folder: Path

    @property
    def identity(self) -> str:
        """Equal for pages of one run: what was decided, and with which numbers."""
        digest = hashlib.sha256(f"{self.plan.backend}\n{self.plan.model}\n".encode())
        for nodes in (self.plan.quantized, self.plan.fused, self.plan.left_float):
            digest.update("\n".join(nodes).encode("utf-8", "surrogatepass"))
        for name, held in self.qparams.entries.items():
            digest.update(f"\n{name}\n{held.spec}\n".encode("utf-8", "surrogatepass"))
            digest.update(held.scale.tobytes())
            digest.update(np.ascontiguousarray(held.zero_point).tobytes())
        return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Measured:
    """What the files of a run do not say, in the form of the page; None where nobody has measured it.

    observed  what calibration saw of tensors
    layers    noise of tensors, with the numbers of the samples
    inputs    the data
    macs      node -> multiplications in one sample
    float_file  bytes of the file that was given
    latency  times of the float model and of the file, layer by layer, for each engine
    """

    observed: JsonObject = field(default_factory=dict)
    layers: JsonObject | None = None
    inputs: JsonObject | None = None
    macs: JsonObject | None = None
    float_file: int | None = None
    latency: JsonObject | None = None

    def to_json(self) -> JsonObject:
        return vars(self)


def run_page(run: Run, backend: Backend | None, model: JsonMapping, measured: JsonMapping) -> JsonObject:
    """The data of a page; `backend` is None where the target of a run is not known here."""
    return {
        "format": FORM,
        "version": 1,
        "onnxq": __version__,
        "run": run.identity,
        "backend": run.plan.backend,
        "verdict": verdict_json(run.report),
        "commands": _commands(run.report),
        "report": _report(run.report),
        "config": run.config,
        "model": model,
        "measured": measured,
        "files": _files(run, backend),
        "next": _next(run, backend),
        **further_json(run.folder),
    }


def _commands(report: JsonMapping) -> dict[str, str]:
    """Lines to copy that measure what a page does not have yet."""
    model, data = given_to(report)
    return {"latency": bench_command(report, model, data), "noise": report_command(report, data)}


def _report(report: JsonMapping) -> JsonObject:
    """report.json without what the page has elsewhere, and with remarks that are alike put together."""
    coverage = {key: value for key, value in report["coverage"].items() if key not in ("float_nodes", "float_codes")}
    passes = report.get("passes", ())
    work = {key: value for key, value in report.get("work", {}).items() if key != "layer_macs"}
    return {
        **{key: value for key, value in report.items() if key not in ("kinds", "files", "vendor_steps", "work")},
        **({"work": work} if work else {}),
        "coverage": coverage,
        "warnings": _folded(report["warnings"], report),
        "notes": _folded(report["notes"], report),
        "passes": [{**one, "changed": len(one["changed"]), "declined": len(one["declined"])} for one in passes],
    }


def _folded(lines: Sequence[str], report: JsonMapping) -> list[str]:
    """Lines with those of a kind put together; report.json knows the kinds, also when it was read from its file."""
    kinds = {line: kind for kind, members in report.get("kinds", {}).items() for line in members}
    notes = [Note(kinds[line], line) if line in kinds else str(line) for line in lines]
    return [str(text) for text in folded(notes)][:MOST_REMARKS]


def _files(run: Run, backend: Backend | None) -> list[JsonObject]:
    """The files of a run by name, with their sizes; the report and the page, which are written last, without."""
    found = []
    purposes = {} if backend is None else _purposes(backend, str(run.config.get("name", "model")))
    for name in dict.fromkeys([*(Path(path).name for path in run.report["files"]), PAGE]):
        known = None if name in (REPORT, PAGE) else file_size(run.folder / name)
        found.append({"name": name, "bytes": known, "what": purposes.get(name)})
    return found


def file_size(path: Path) -> int | None:
    """Bytes of a file that is there."""
    return path.stat().st_size if path.is_file() else None


def _next(run: Run, backend: Backend | None) -> list[JsonObject]:
    """What the vendor's tools do with the files; a report of an earlier version does not say it."""
    if "vendor_steps" in run.report or backend is None:
        return list(run.report.get("vendor_steps", ()))
    files = {Path(path).name for path in run.report["files"]}
    return vendor_steps(backend, str(run.config.get("name", "model")), files)


def _purposes(backend: Backend, name: str) -> dict[str, str]:
    """File -> what its emitter says of it."""
    found = {
        f"{name}{FLOAT_MODEL}": "the float model, with its constants as methods have changed them",
        f"{name}{REMEDY}": "a configuration with the remedies that pay: 'onnxq quantize -c' takes it",
    }
    for emitter in (EMITTERS.get(one) for one in backend.emitters):
        said = _without_verb((emitter.write.__doc__ or "").strip().partition("\n")[0], name)
        found.update(dict.fromkeys(emitter.file_names(name), said))
    return found


def _without_verb(said: str, name: str) -> str:
    """What a file is, of the sentence that says how it is written, which may end in `: what it is`."""
    what = said.partition(": ")[2] or said
    return what.replace("<name>", name).replace("`", "")


def further_json(folder: Path) -> JsonObject:
    """The course of a training and the front of a search, where the folder has them."""
    found: JsonObject = {}
    if (folder / TRAINING).is_file():
        found["training"] = _columns(folder / TRAINING)
    if (folder / SCALES).is_file():
        found["scales"] = _scales(_columns(folder / SCALES))
    if (folder / FRONT).is_file():
        found["front"] = front_json(read_object(folder / FRONT, "front"))
    elif (folder / HELD).is_file():
        found["held"] = dict(read_object(folder / HELD, "restored layers"))
    return found


def _columns(path: Path) -> Mapping[str, list[float | None]]:
    """Column -> numbers, None where a row has none."""
    with open(path, encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    names = list(rows[0]) if rows else []
    return {name: [_number(row[name]) for row in rows] for name in names}


def _scales(columns: Mapping[str, Sequence[float | None]]) -> JsonObject:
    """The scales over the steps, the tensors first whose scales moved by the largest factor."""
    tensors = sorted((name for name in columns if name != "step"), key=lambda name: -_moved(columns[name]))
    return {
        "step": columns.get("step", ()),
        "tensors": {name: columns[name] for name in tensors[:MOST_SCALES]},
        "count": len(tensors),
    }


def _moved(scales: Sequence[float | None]) -> float:
    """The logarithm of the factor between the largest and the smallest scale of a course."""
    known = [scale for scale in scales if scale is not None and scale > 0]
    return math.log(max(known) / min(known)) if known else 0.0


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if abs(value) < float("inf") else None


def front_json(front: JsonMapping) -> JsonObject:
    """front.json without the bits of points that are neither on the front nor chosen."""
    points = [{key: value for key, value in point.items() if key != "bits"} for point in front.get("points", ())]
    return {**front, "points": points, "against_float": front.get("metric") in AGAINST_FLOAT}


def search_page(folder: Path) -> JsonObject:
    """The data of a page about a search alone, which has judged configurations and written no model."""
    config = read_object(folder / "config.json", "configuration")
    names = ["config.json", FRONT, "front.svg"] if (folder / FRONT).is_file() else ["config.json", HELD]
    return {
        "format": FORM,
        "version": 1,
        "onnxq": __version__,
        "backend": str(config.get("backend", "")),
        "config": config,
        "files": [{"name": name, "bytes": file_size(folder / name)} for name in names],
        **further_json(folder),
    }
