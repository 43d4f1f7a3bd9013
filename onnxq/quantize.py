"""The whole flow as one function: model in, checked files out."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxq.collector import collector_relaxed
from onnxq.config import ConfigSource, read_config
from onnxq.distributed import Ranks, in_step
from onnxq.json_file import JsonObject
from onnxq.output_folder import claim
from onnxq.passes import Pass
from onnxq.pipeline.artifacts import FLOAT_MODEL, Result, emit_plan, refuse_overwriting
from onnxq.pipeline.explanation import Examine, Explanation
from onnxq.pipeline.forecast import announce_files, limited
from onnxq.progress import Progress
from onnxq.progress.bar import watched
from onnxq.ptq.method import State, read_improvement
from onnxq.ptq.search.costs import KIND, announce_search
from onnxq.ptq.search.outcome import Outcome
from onnxq.ptq.search.stage import (
    IMPROVING,
    improve_model,
    remove_stale_values,
    remove_unfinished,
    statistics_to_share,
    wanted_schedule,
)
from onnxq.session.prepare import Model
from onnxq.session.session import Session, open_session
from onnxq.types import Backend
from onnxq.types.note import folded
from onnxq.verify import ResultCheck
from onnxq.warned import warn_of

if TYPE_CHECKING:
    from onnxq.mixed_precision.task import OpenTask, Task
    from onnxq.ptq.search.evaluator import UserMetric


def quantize(
    model: Model,
    *,
    backend: str | Backend | None = None,
    data: Any = None,
    config: ConfigSource = None,
    out: str | Path | None = None,
    passes: Sequence[str | Pass] = (),
    progress: Progress | bool | None = None,
    warnings: Sequence[str] = (),
    statistics: str | Path | None = None,
    ranks: Ranks | None = None,
    strict: bool = False,
    time_limit: str | float | None = None,
    metric: str | UserMetric | Sequence[str | UserMetric] | None = None,
    evaluate: Any = None,
    labels: str | None = None,
    hold: float | None = None,
    max_drop: float | None = None,
    reach: float | None = None,
) -> Result:
    """Quantize a model for a backend and write its files, plan.json, qparams.json and report.json into `out`.

    backend     a target's name with its options, or a Backend; None takes the one that `config` names
    data        calibration samples (docs/data.md): file, folder, images, iterable of feeds, data loader ...; None takes
                the file that `config` names. A target that quantizes weights alone needs none; accuracy is then not
                measured
    config      see `onnxq.config.Config`; a file that names code has to be read with `onnxq.read_config(file,
                allow_code=True)` first
    out         folder for the files; None makes a new temporary folder, which is the caller's to delete
    passes      the caller's own graph passes, run after the backend's
    progress    None shows a bar in a terminal or notebook (unless the environment has ONNXQ_PROGRESS=no), True always,
                False never; a function is called with (stage, done, total)
    warnings    what the caller knows about the run (random data), for the report
    statistics  .npz file in which calibration keeps what it saw: used again by the next run, gone on with after a crash
    ranks       processes that calibrate together (`onnxq.distributed`); the others call `contribute`
    strict      refuse a model with operators that the target has no rule for
    time_limit  seconds, or a text such as "2m": improvements and diagnosis that do not fit are left out, and recorded

    metric      sqnr_db, kl, agreement, accuracy, module:function, or a function of (outputs, labels); one or several:
                measured on the float model and on the written one, for the report
    evaluate    data for it, with labels where it needs them; else the first calibration samples
    labels      the name of the labels in it
    hold, max_drop, reach   what the (first) metric must keep: a fraction of the float model's, a difference, a value

    The files appear only when every check of them has passed; otherwise CheckFailed is raised and `out` is untouched.
    Warnings of the report are given as OnnxqWarning, too.
    """
    task = None
    if any(one is not None for one in (metric, evaluate, labels, hold, max_drop, reach)):
        from onnxq.mixed_precision.task import Task  # here, because `import onnxq` is to stay quick

        task = Task.of(metric, evaluate, labels=labels, hold=hold, max_drop=max_drop, reach=reach)
    with watched(progress, title="onnxq.quantize") as tracker, collector_relaxed():
        with in_step(ranks):
            session = open_session(
                model,
                backend=backend,
                data=data,
                config=config,
                passes=passes,
                strict=strict,
                progress=tracker,
                ranks=ranks,
            )
            if time_limit is not None:
                session = replace(session, settings=read_config(session.settings, time_limit=time_limit))
        result = quantize_session(session, out, warnings=warnings, statistics=statistics, task=task)
    warn_of(folded(result.report["warnings"]), stacklevel=2)
    return result


def quantize_session(
    session: Session,
    out: str | Path | None,
    *,
    warnings: Sequence[str] = (),
    statistics: str | Path | None = None,
    task: Task | None = None,
) -> Result:
    """The same for a session that is open; its data need not be."""
    from onnxq.latency import refuse_untimed, tuned  # here, because `import onnxq` is to stay quick
    from onnxq.page.work import work_of
    from onnxq.page.write import page_of

    session = limited(session)
    announce_run(session)
    folder = Path(tempfile.mkdtemp(prefix="onnxq-") if out is None else out)
    with ExitStack() as stack:
        if out is None:
            stack.push(
                lambda kind, error, trace: shutil.rmtree(folder, ignore_errors=True) if kind is not None else None
            )
        with in_step(session.ranks):
            output = stack.enter_context(claim(folder))  # now, and not after minutes of work
            refuse_overwriting(session.original, session.backend, folder, session.settings.name, float_model=True)
            session.open_data()
            refuse_untimed(session)
            judged = _opened(task, session)
        if session.settings.optimize_for is not None:
            session = tuned(session)
        calibrated = session.calibrated(
            None if statistics is None else Path(statistics), kept=lambda: statistics_to_share(session)
        )
        session.tracker.end_round()
        ready, improved = improve_model(calibrated, folder)
        session.tracker.drop_kind(KIND)
        result = emit_plan(
            replace(ready, warnings=(*warnings, *ready.warnings, *_unmeasured(session))),
            output,
            more=lambda stage: {
                **work_of(ready.state.graph, ready.state.plan, session.dataset),
                **_with_improvements(stage, session, improved),
                **({} if judged is None else {"task": judged.of_file(stage / f"{session.settings.name}.onnx")}),
            },
            effort_tried=improved is not None,
            examine=_examiner(session, ready.state),
            draw=page_of(session.settings, None if _rescaled(improved) else session.prepared.graph),
        )
        if improved is not None and any(read_improvement(step.name).method.needs_torch for step in improved.steps):
            remove_unfinished(folder / IMPROVING)
        remove_stale_values(folder / IMPROVING)
    session.tracker.finish()
    return result


def _opened(task: Task | None, session: Session) -> OpenTask | None:
    """The user's metrics with their data, measured on the float model that was given."""
    if task is None:
        return None
    from onnxq.mixed_precision.task import OpenTask

    return OpenTask(task, session.original, session.dataset, session.settings.preprocess)


def _examiner(session: Session, state: State) -> Examine:
    """Finds out why results are low; what that takes is imported where one is."""

    def examine(results: Sequence[ResultCheck], *, failed: bool) -> Explanation | None:
        from onnxq.diagnose.automatic import examiner

        found = examiner(session, state)
        return None if found is None else found(results, failed=failed)

    return examine


def announce_run(session: Session) -> None:
    """Tell the tracker what a run consists of, so that it can say how far it is."""
    tracker = session.tracker
    tracker.measure_by("calibrate")
    if session.data is not None or session.dataset is not None:
        announce_search(tracker, wanted_schedule(session.settings))
    announce_files(tracker, session.settings)


def _rescaled(outcome: Outcome | None) -> bool:
    """Whether tensors inside the model are others than those of the model that was given."""
    steps = () if outcome is None else outcome.steps
    return any(step.applied and read_improvement(step.name).method.rescales for step in steps)


def _unmeasured(session: Session) -> list[str]:
    """A warning for everything that somebody asked for and that takes data, where there is none."""
    config = session.settings
    if session.dataset is not None:
        return []
    found = []
    if config.minimum_sqnr_db != type(config).model_fields["minimum_sqnr_db"].default:
        found.append(
            f"no output was held to {config.minimum_sqnr_db:g} dB: there is no data to measure it with, give some"
        )
    if "effort" in config.model_fields_set and config.effort > 0:
        found.append(
            f"{config.source('effort')}: effort {config.effort} has changed nothing: there is no data to fit to and to "
            "evaluate on. Give some with -d, or name improvements that need none with --improve"
        )
    return found


def _with_improvements(stage: Path, session: Session, outcome: Outcome | None) -> JsonObject:
    """The float model with the constants that improvements have changed, and the entry of the report."""
    if outcome is None:
        return {}
    if any(step.applied for step in outcome.steps):
        outcome.state.graph.save(stage / f"{session.settings.name}{FLOAT_MODEL}", given_names=True)
    return {"improvements": outcome.to_json()}


def contribute(
    model: Model,
    ranks: Ranks,
    *,
    backend: str | Backend | None = None,
    data: Any,
    config: ConfigSource = None,
    passes: Sequence[str | Pass] = (),
    statistics: str | Path | None = None,
) -> None:
    """What every process but the first does while that one runs `quantize`: calibrate on its share of the samples."""
    with in_step(ranks):
        session = open_session(model, backend=backend, data=data, config=config, passes=passes, ranks=ranks)
    contribute_to_session(session, statistics=statistics)


def contribute_to_session(session: Session, *, statistics: str | Path | None = None) -> None:
    """The same for a session that is open; the first process runs `quantize_session`."""
    with in_step(session.ranks):  # the first one claims the output folder
        session.open_data()
    with in_step(session.ranks):
        plan = session.plan()
    session.gather(plan, file=None if statistics is None else Path(statistics))
