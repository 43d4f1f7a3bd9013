"""From a plan with its parameters to files that have passed every check, and to nothing if they have not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import StrictStr

from onnxq.calibrate.identity import model_identity
from onnxq.config import resolved_settings
from onnxq.config.toml_text import write_toml
from onnxq.emit import file_names
from onnxq.errors import ConfigError, OnnxqError, one_line_error
from onnxq.files import write_json
from onnxq.graph import Graph
from onnxq.json_file import JsonMapping, JsonObject, Stored, read_object, validated
from onnxq.output_folder import OutputFolder, claim, refuse_folders, refuse_inputs, staging
from onnxq.pipeline.explanation import LOW_SQNR_DB, Examine
from onnxq.pipeline.forecast import limit_json, limit_warnings, repeatable
from onnxq.pipeline.report import Report, build_report
from onnxq.pipeline.result import PAGE, Result
from onnxq.pipeline.written import FileCheck, Writer, Written
from onnxq.progress import TimeLimit
from onnxq.session.prepare import Prepared
from onnxq.session.session import Calibrated
from onnxq.types import Backend

__all__ = [
    "COMPANIONS",
    "CONFIG",
    "FLOAT_MODEL",
    "PAGE",
    "REMEDY",
    "REPORT",
    "DrawPage",
    "Finished",
    "Result",
    "emit_plan",
    "refuse_overwriting",
]

REPORT = "report.json"
CONFIG = "config.json"
COMPANIONS = ("plan.json", "qparams.json", CONFIG, REPORT)
"""What stands beside the files of every target; the page too, unless somebody does not want it."""

FLOAT_MODEL = "_float.onnx"
"""What the float model is called behind the name of the files: the one that plan and parameters belong to."""

REMEDY = "_remedy.toml"
"""What the configuration is called that fixes a low result, behind the name of the files."""


@dataclass(frozen=True)
class Finished:
    """A run whose files are written and checked, for who draws its page; `config` is what config.json holds."""

    ready: Calibrated
    written: Written
    report: Report
    config: JsonMapping


DrawPage = Callable[[Path, Finished], None]
"""Draws the page of a run into the folder that holds its files."""


def emit_plan(
    ready: Calibrated,
    folder: Path | OutputFolder,
    *,
    own_check: FileCheck | None = None,
    more: Callable[[Path], JsonMapping] | None = None,
    effort_tried: bool = True,
    examine: Examine | None = None,
    draw: DrawPage | None = None,
) -> Result:
    """Write the files of a plan with its parameters and check them; without a dataset accuracy is not measured.

    The samples that accuracy is measured on are those that no improvement is fitted to, whether any was tried or not.

    A `folder` that nobody has claimed yet is claimed now. `own_check` is one more check of the model file, whose
    weights then keep their numbers; `more` writes further files into the folder that it is given, and returns further
    entries of the report. `effort_tried` is for config.json, see `resolved_settings`. `examine` finds out why a result
    is low; what it finds is part of the report, or of the error. `draw` makes the page, and a fault of it costs
    nothing else.
    """
    writer = Writer(ready, own_check, examine)
    prepared, original = writer.prepared, ready.session.original
    name = prepared.config.name
    with claim(folder) as output:
        folder = output.path
        refuse_overwriting(original, prepared.backend, folder, name)
        # The report first: a folder that has one may be written to again.
        with staging(output, original.files(), first=REPORT) as stage:
            written = writer.write(stage)
            remarks = [*ready.notes, *written.remarks]
            further = {} if more is None else more(stage)
            if written.explanation is not None and written.explanation.remedy is not None:
                write_toml(stage / f"{name}{REMEDY}", written.explanation.remedy)
                remarks.append(
                    f"the remedies that pay are in {folder / f'{name}{REMEDY}'}: run 'onnxq quantize' with it (-c)"
                )
            names = [path.name for path in written.emitted.files]
            names += sorted({path.name for path in stage.iterdir()} - set(names))
            names += (*COMPANIONS, PAGE) if draw is not None else COMPANIONS
            remarks += _left_over(folder, names)
            report = build_report(
                ready,
                written,
                notes=[*remarks, *written.emitted.notes, *written.checks.notes],
                files=[folder / name for name in names],
                seconds=writer.clock.seconds,
                warn_below_db=None if own_check is not None else LOW_SQNR_DB,
            )
            report.update(further)
            plan = replace(written.plan, model=model_identity(prepared.graph))
            write_json(stage / "plan.json", plan.to_json())
            write_json(stage / "qparams.json", written.qparams.for_json_file())
            limit = ready.session.limit
            spelt_out = _spelt_out(prepared, limit, effort_tried)
            write_json(stage / CONFIG, spelt_out)
            if draw is not None:
                ready.session.progress("page", 0, None)
                with writer.clock.stage("page"):
                    fault = _fault_of_page(draw, stage, Finished(ready, replace(written, plan=plan), report, spelt_out))
                if fault is not None:
                    report["warnings"].append(f"{PAGE} was not written: {fault}")
                    report["files"].remove(str(folder / PAGE))
            if limit is not None:
                write_json(stage / CONFIG, _spelt_out(prepared, limit, effort_tried))
                report["warnings"] += limit_warnings(limit)
                report["time_limit"] = limit_json(limit)
            write_json(stage / REPORT, report)
    return Result(folder / f"{name}.onnx", plan, written.qparams, report)


def _spelt_out(prepared: Prepared, limit: TimeLimit | None, effort_tried: bool) -> JsonObject:
    """What config.json holds: every choice, and in the place of a limit of time what it has left out so far."""
    config = prepared.config if limit is None else repeatable(prepared.config, limit, searched=effort_tried)
    return resolved_settings(prepared.backend, config, prepared.own_passes, prepared.target, effort_tried=effort_tried)


def _fault_of_page(draw: DrawPage, stage: Path, done: Finished) -> str | None:
    """Draw the page; what went wrong, if something did: it must not cost the files, which are finished."""
    try:
        draw(stage, done)
    except MemoryError:
        return "there was not enough memory for it"
    except Exception as error:
        return one_line_error(error)
    return None


def _left_over(folder: Path, names: Sequence[str]) -> list[str]:
    """Files of an earlier run into the same folder that this one does not replace: they belong to another model."""
    earlier = _earlier_report(folder)
    if earlier is None:
        return []
    listed = {Path(path).name for path in earlier.files}
    old = sorted(name for name in listed - set(names) if (folder / name).exists())
    if not old:
        return []
    return [f"of an earlier run for {earlier.backend}, not of this one: {', '.join(old)} in {folder}"]


class _EarlierReport(Stored):
    backend: StrictStr
    files: list[StrictStr]
    coverage: dict[StrictStr, Any]


def _earlier_report(folder: Path) -> _EarlierReport | None:
    """The report of an earlier run into the same folder; None where there was none, or it is none of ours."""
    try:
        return validated(_EarlierReport, read_object(folder / REPORT, "report"), REPORT)
    except (OSError, OnnxqError):
        return None


def refuse_overwriting(model: Graph, backend: Backend, folder: Path, name: str, *, float_model: bool = False) -> None:
    """Raise ConfigError if a file that would be written into `folder` is one that the model is read from, or a folder.

    Or if it is a model that was there before any run of onnxq: a folder with the report of one may be written to again.
    `float_model` says that the improved float model may be among the files.
    """
    names = [*file_names(backend, name), *([f"{name}{FLOAT_MODEL}"] if float_model else [])]
    refuse_inputs(model.files(), [folder / name for name in names])
    refuse_folders([folder / name for name in (*names, *COMPANIONS, PAGE)])
    foreign = next((folder / name for name in names if name.endswith(".onnx") and (folder / name).exists()), None)
    if foreign is not None and _earlier_report(folder) is None:
        raise ConfigError(
            f"{foreign} is there already, and no {REPORT} of onnxq beside it says that a run has written it, so it is "
            "not overwritten. Choose another folder with -o, or move the file away"
        )
