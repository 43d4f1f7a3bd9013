"""From a plan with its parameters to files that have passed every check, and to nothing if they have not.

For onnxruntime as the target, the kernels of this machine are part of the checks: where they saturate, other ways to
write the weights are tried (`onnxq.pipeline.saturating_kernels`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from pydantic import StrictStr

from onnxq.calibrate.identity import model_identity
from onnxq.config import Config, resolved_settings
from onnxq.config.toml_text import write_toml
from onnxq.emit import Emitted, emit, file_names
from onnxq.emit.saturation import with_unsigned_weights
from onnxq.emit.simulate import simulate
from onnxq.errors import ConfigError, OnnxqError, UnsupportedError
from onnxq.files import write_json
from onnxq.graph import Graph
from onnxq.json_file import Stored, read_object, validated
from onnxq.output_folder import OutputFolder, claim, refuse_folders, refuse_inputs, staging
from onnxq.passes import run_passes
from onnxq.pipeline.report import DIAGNOSE, LOW_SQNR_DB, Examine, Explanation, Report, build_report
from onnxq.pipeline.saturating_kernels import (
    UNSIGNED,
    WAYS_OUT,
    Attempt,
    kernel_warnings,
    may_saturate,
    wants_unsigned,
    without_saturation,
)
from onnxq.place.legal import check_plan
from onnxq.progress import Clock
from onnxq.ptq.method import Samples
from onnxq.ptq.search.division import checked_on
from onnxq.runtime.fault import own_fault, raise_own_fault
from onnxq.session.prepare import Prepared
from onnxq.session.session import Calibrated
from onnxq.temporary import temporary_folder
from onnxq.types import Backend, QParamsTable, QuantPlan
from onnxq.types.note import folded
from onnxq.verify import (
    ChecksFailed,
    Failure,
    FailureKind,
    OutputCheck,
    ResultCheck,
    VerifyReport,
    below_limit,
    compare_outputs,
    verify,
)

REPORT = "report.json"
COMPANIONS = ("plan.json", "qparams.json", "config.json", REPORT)
"""What stands beside the files of every target."""

FLOAT_MODEL = "_float.onnx"
"""What the float model is called behind the name of the files: the one that plan and parameters belong to."""

REMEDY = "_remedy.toml"
"""What the configuration is called that mends a low result, behind the name of the files."""

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

FileCheck = Callable[[Path], Sequence[str]]
"""Looks at a written model and returns what is wrong with it, a sentence each."""


@dataclass
class Result:
    """What `quantize` gives back: the written model, the values behind it and the report."""

    model: Path
    plan: QuantPlan
    qparams: QParamsTable
    report: Report


def emit_plan(
    ready: Calibrated,
    folder: Path | OutputFolder,
    *,
    own_check: FileCheck | None = None,
    more: Callable[[Path], Mapping[str, Any]] | None = None,
    effort_tried: bool = True,
    examine: Examine | None = None,
) -> Result:
    """Write the files of a plan with its parameters and check them; without a dataset accuracy is not measured.

    The samples that accuracy is measured on are those that no improvement is fitted to, whether any was tried or not.

    A `folder` that nobody has claimed yet is claimed now. `own_check` is one more check of the model file, whose
    weights then keep their numbers; `more` writes further files into the folder that it is given, and returns further
    entries of the report. `effort_tried` is for config.json, see `resolved_settings`. `examine` finds out why a result
    is low; what it finds is part of the report, or of the error.
    """
    session, plan, qparams = ready.session, ready.state.plan, ready.state.qparams
    original, dataset, warnings = session.original, session.dataset, ready.warnings
    prepared = replace(session.prepared, graph=ready.state.graph)
    clock = Clock(dict(session.clock.seconds))
    remarks = list(ready.notes)
    name = prepared.config.name
    compared = None if dataset is None else checked_on(dataset, prepared.config.verify_samples)
    if wants_unsigned(prepared, plan, measured=dataset is not None):
        plan, qparams = with_unsigned_weights(prepared.graph, plan, qparams)
        if not prepared.config.portable:
            remarks.append(f"{UNSIGNED} (the model is too large to try other ways)")

    def write(plan: QuantPlan, qparams: QParamsTable) -> Emitted:
        session.progress("emit", 0, None)
        with clock.stage("emit"):
            return emit(prepared.graph, plan, qparams, prepared.backend, stage, name)

    def judge(emitted: Emitted, plan: QuantPlan) -> VerifyReport:
        session.progress("verify", 0, None)
        with clock.stage("verify"):
            checks = _verified(original, emitted, plan, prepared, compared, minimum)
            if own_check is not None and checks.passed:
                found = own_check(_model_file(emitted))
                checks = replace(checks, failures=tuple(Failure(FailureKind.OTHER, text) for text in found))
            return checks

    # How far a trained model is from its own weights in float says little, unless the user asked for it.
    asked = own_check is None or "minimum_sqnr_db" in prepared.config.model_fields_set
    minimum = prepared.config.minimum_sqnr_db if asked else None
    check_plan(plan, prepared.backend)
    with claim(folder) as output, ExitStack() as stack:
        folder = output.path
        refuse_overwriting(original, prepared.backend, folder, name)
        # The report first: a folder that has one may be written to again.
        stage = stack.enter_context(staging(output, original.files(), first=REPORT))
        emitted = write(plan, qparams)
        checks = judge(emitted, plan)
        if checks.refusal is not None:
            raise_own_fault(checks.refusal, _runnable(original) or original, dataset)
        fail_on(checks, warnings, examine)
        if may_saturate(checks, prepared):
            first = Attempt(plan, qparams, emitted, checks)
            ways = WAYS_OUT if own_check is None else WAYS_OUT[1:]  # trained weights keep their numbers
            (plan, qparams, emitted, checks), remark = without_saturation(prepared.graph, first, ways, write, judge)
            remarks.extend(remark)
        with clock.stage("simulate"):
            simulated = _simulated(original, prepared, plan, qparams, compared, stage)
        on_the_chip = [result for check in simulated for result in check.results]
        surely = limit_is_ours(prepared.config)
        lost = tuple(below_limit(on_the_chip, minimum, " on the chip, as simulated", surely=surely))
        fail_on(replace(checks, failures=lost), warnings, examine)
        low = any(result.silent or result.sqnr_db < LOW_SQNR_DB for result in (*checks.results, *on_the_chip))
        explanation = None
        if low and examine is not None:
            with clock.stage("diagnose"):
                explanation = _explained(examine, (*checks.results, *on_the_chip))
        further = {} if more is None else more(stage)
        if explanation is not None and explanation.remedy is not None:
            write_toml(stage / f"{name}{REMEDY}", explanation.remedy)
            remarks.append(
                f"the remedies that pay are in {folder / f'{name}{REMEDY}'}: run 'onnxq quantize' with it (-c)"
            )
        names = [path.name for path in emitted.files]
        names += sorted({path.name for path in stage.iterdir()} - set(names))
        names += COMPANIONS
        remarks += _left_over(folder, names)
        report = build_report(
            backend=prepared.backend,
            config=prepared.config,
            passes=prepared.passes,
            plan=plan,
            warnings=[*warnings, *emitted.warnings, *checks.warnings, *kernel_warnings(checks, plan, prepared)],
            notes=[*remarks, *emitted.notes, *checks.notes],
            samples=ready.samples,
            checks=checks,
            simulated=on_the_chip,
            files=[folder / name for name in names],
            seconds=clock.seconds,
            warn_below_db=None if own_check is not None else LOW_SQNR_DB,
            explanation=explanation,
        )
        report.update(further)
        plan = replace(plan, model=model_identity(prepared.graph))
        write_json(stage / "plan.json", plan.to_json())
        write_json(stage / "qparams.json", qparams.to_json())
        spelt_out = resolved_settings(
            prepared.backend, prepared.config, prepared.own_passes, prepared.target, effort_tried=effort_tried
        )
        write_json(stage / "config.json", spelt_out)
        write_json(stage / REPORT, report)
    return Result(folder / f"{name}.onnx", plan, qparams, report)


def _explained(examine: Examine, results: Sequence[ResultCheck]) -> Explanation | None:
    """Why a result is low, for a run whose checks have passed: who stops the search still gets the files."""
    try:
        return examine(results, failed=False)
    except KeyboardInterrupt as stop:
        if type(stop) is not KeyboardInterrupt:
            raise  # a process that is told to end
        return Explanation((f"the diagnosis was interrupted, the files are complete; for the cause: {DIAGNOSE}",), None)


def _simulated(
    original: Graph,
    prepared: Prepared,
    plan: QuantPlan,
    qparams: QParamsTable,
    samples: Samples | None,
    stage: Path,
) -> tuple[OutputCheck, ...]:
    """The outputs as the chip computes them, where the written model cannot say it; empty where it does."""
    backend = prepared.backend
    other_rounding = any(placement.spec.rounding != "half_even" for placement in plan)
    if samples is None or not (backend.simulations or (backend.rounding_in_files == "half_even" and other_rounding)):
        return ()
    graph, changes = simulate(prepared.graph, plan, qparams, backend)
    if not changes and not other_rounding:
        return ()  # no operator is one that the chip computes in its own way
    with temporary_folder(inside=stage) as folder:
        path = folder / "simulated.onnx"
        return check_simulated(graph, original, path, samples)


def check_simulated(graph: Graph, original: Graph, path: Path, samples: Samples | None) -> tuple[OutputCheck, ...]:
    """Save a simulated model; it must load in onnxruntime, and with data its outputs are compared with the float model.

    `path` lies in a folder that vanishes when this fails.
    """
    graph.save(path)
    numbers = () if samples is None else samples.numbers
    reference = _runnable(original) or original
    with own_fault(reference, samples):
        return compare_outputs(reference, path, samples, samples=len(numbers), numbers=numbers)


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


def fail_on(report: VerifyReport, warnings: Sequence[str], examine: Examine | None = None) -> None:
    """Raise ChecksFailed if a check has failed, with every finding and the warnings of earlier stages.

    Where accuracy is what fails, `examine` is asked for the cause and the remedy.
    """
    if not report.failures:
        return
    lines = [*map(str, report.failures), *(f"warning: {line}" for line in folded([*warnings, *report.warnings]))]
    kinds = {failure.kind for failure in report.failures}
    if kinds & {FailureKind.LOW, FailureKind.SILENT}:
        limit = "a minimum_sqnr_db below 0" if FailureKind.SILENT in kinds else "a lower minimum_sqnr_db"
        found = None if examine is None else examine(report.results, failed=True)
        lines += [f"for the cause: {DIAGNOSE}"] if found is None else found.lines
        if found is not None and found.remedy is not None:
            lines.append(f"for a configuration with what pays: {DIAGNOSE} and --apply FILE")
        lines.append(f"to have the files all the same: {limit} (--min-sqnr)")
    text = "\n  ".join(lines)
    raise ChecksFailed(
        f"the quantized model failed its checks, so no files were written:\n  {text}", report.failures, report.results
    )


def _verified(
    original: Graph,
    emitted: Emitted,
    plan: QuantPlan,
    prepared: Prepared,
    samples: Samples | None,
    minimum: float | None,
) -> VerifyReport:
    numbers = () if samples is None else samples.numbers
    return verify(
        original,
        _model_file(emitted),
        plan,
        prepared.backend,
        samples,
        samples=len(numbers),
        minimum_db=minimum,
        reference=_runnable(original),
        numbers=numbers,
        surely=limit_is_ours(prepared.config),
    )


def limit_is_ours(config: Config) -> bool:
    """Whether nobody has set a limit: the one that stands in for it must not be kept by luck."""
    return "minimum_sqnr_db" not in config.model_fields_set


def _runnable(original: Graph) -> Graph | None:
    """onnxruntime has no bfloat16 kernels for most operators: such a model is compared in its float32 form."""
    if not any(original.dtype(name) == _BFLOAT16 for name in original.tensor_names()):
        return None
    widened = original.copy()
    run_passes(widened, ["widen_bfloat16"])
    return widened


def _model_file(emitted: Emitted) -> Path:
    for path in emitted.files:
        if path.suffix == ".onnx":
            return path
    raise UnsupportedError("the backend's emitters write no .onnx file, so there is nothing that could be checked")


def refuse_overwriting(model: Graph, backend: Backend, folder: Path, name: str, *, float_model: bool = False) -> None:
    """Raise ConfigError if a file that would be written into `folder` is one that the model is read from, or a folder.

    Or if it is a model that was there before any run of onnxq: a folder with the report of one may be written to again.
    `float_model` says that the improved float model may be among the files.
    """
    names = [*file_names(backend, name), *([f"{name}{FLOAT_MODEL}"] if float_model else [])]
    refuse_inputs(model.files(), [folder / name for name in names])
    refuse_folders([folder / name for name in (*names, *COMPANIONS)])
    foreign = next((folder / name for name in names if name.endswith(".onnx") and (folder / name).exists()), None)
    if foreign is not None and _earlier_report(folder) is None:
        raise ConfigError(
            f"{foreign} is there already, and no {REPORT} of onnxq beside it says that a run has written it, so it is "
            "not overwritten. Choose another folder with -o, or move the file away"
        )
