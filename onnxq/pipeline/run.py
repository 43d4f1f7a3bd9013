"""The whole flow as one function: model in, checked files out."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx

from onnxq.calibrate import Gathered, activation_leaders, calibrate, gather, gather_into, gather_shared
from onnxq.config import Config, ConfigSource, read_config
from onnxq.distributed import Ranks, in_step
from onnxq.graph import Graph
from onnxq.output_folder import claim
from onnxq.passes import Pass
from onnxq.pipeline.artifacts import FLOAT_MODEL, Clock, Progress, Result, emit_plan, refuse_overwriting
from onnxq.ptq.method import Samples, State, read_improvement
from onnxq.ptq.search.outcome import Outcome, Reached
from onnxq.ptq.search.stage import improve_calibrated, remove_stale_values, remove_unfinished
from onnxq.ptq.search.unjudged import improve_without_data
from onnxq.refine import refine
from onnxq.runtime import Dataset, input_infos, open_dataset
from onnxq.runtime.fault import own_fault
from onnxq.runtime.samples import Shard
from onnxq.session.float_tails import calibrate_with_tails, tail_notes
from onnxq.session.model_io import check_borders, fix_borders, separate_sizes
from onnxq.session.prepare import Prepared, chosen_backend, load_model, make_plan, prepare
from onnxq.types import Backend, QParamsTable, QuantPlan


def quantize(
    model: str | Path | onnx.ModelProto | Graph,
    *,
    backend: str | Backend | None = None,
    data: Any = None,
    config: ConfigSource = None,
    out: str | Path | None = None,
    passes: Sequence[str | Pass] = (),
    progress: Progress | None = None,
    warnings: Sequence[str] = (),
    statistics: str | Path | None = None,
    ranks: Ranks | None = None,
    strict: bool = False,
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
    warnings    what the caller knows about the run (random data), for the report
    statistics  .npz file in which calibration keeps what it saw: used again by the next run, gone on with after a crash
    ranks       processes that calibrate together (`onnxq.distributed`); the others call `contribute`
    strict      refuse a model with operators that the target has no rule for

    The files appear only when every check of them has passed; otherwise CheckFailed is raised and `out` is untouched.
    """
    from onnxq.diagnose.automatic import examiner  # here, because diagnoses are made with functions of this module

    folder = Path(tempfile.mkdtemp(prefix="onnxq-") if out is None else out)
    with ExitStack() as stack:
        if out is None:
            stack.push(
                lambda kind, error, trace: shutil.rmtree(folder, ignore_errors=True) if kind is not None else None
            )
        with in_step(ranks):
            output = stack.enter_context(claim(folder))  # now, and not after minutes of work
        ready = calibrate_model(
            model,
            backend=backend,
            data=data,
            config=config,
            folder=folder,
            passes=passes,
            progress=progress,
            statistics=statistics,
            ranks=ranks,
            strict=strict,
        )
        ready, improved = improve_model(ready, folder, progress=progress)
        result = emit_plan(
            ready.original,
            ready.prepared,
            ready.plan,
            ready.qparams,
            output,
            dataset=ready.dataset,
            samples=ready.samples,
            warnings=[*warnings, *ready.warnings, *_unmeasured(ready)],
            notes=ready.notes,
            seconds=ready.seconds,
            progress=progress,
            more=None if improved is None else lambda stage: _with_improvements(stage, ready, improved),
            effort_tried=improved is not None,
            examine=examiner(
                ready.original,
                ready.prepared,
                State(ready.prepared.graph, ready.plan, ready.qparams),
                ready.dataset,
                backend=backend,
                passes=passes,
                progress=progress,
            ),
        )
        if improved is not None and any(read_improvement(step.name).method.needs_torch for step in improved.steps):
            remove_unfinished(folder / IMPROVING)
        remove_stale_values(folder / IMPROVING)
    return result


def _unmeasured(ready: Calibrated) -> list[str]:
    """A warning for everything that somebody asked for and that takes data, where there is none."""
    config = ready.prepared.config
    if ready.dataset is not None:
        return []
    found = []
    if config.minimum_sqnr_db != type(config).model_fields["minimum_sqnr_db"].default:
        found.append(
            f"no output was held to {config.minimum_sqnr_db:g} dB: there is no data to measure it with, give some"
        )
    if "effort" in config.model_fields_set and config.effort > 0 and config.improvements is None:
        found.append(
            f"{config.source('effort')}: effort {config.effort} has changed nothing: there is no data to fit to and to "
            "judge by. Give some with -d, or name improvements that need none with --improve"
        )
    return found


@dataclass
class Calibrated:
    """A model with its plan and parameters, before anything is written; `original` is the model as it was given."""

    original: Graph
    prepared: Prepared
    plan: QuantPlan
    qparams: QParamsTable
    dataset: Dataset | None
    samples: int
    warnings: list[str]
    notes: list[str]
    seconds: dict[str, float]

    def with_state(self, state: State) -> Calibrated:
        """The same with the constants, plan and parameters that improvements have found."""
        prepared = replace(self.prepared, graph=state.graph)
        return replace(self, prepared=prepared, plan=state.plan, qparams=state.qparams)


def calibrate_model(
    model: str | Path | onnx.ModelProto | Graph,
    *,
    backend: str | Backend | None = None,
    data: Any = None,
    config: ConfigSource = None,
    folder: Path | None = None,
    passes: Sequence[str | Pass] = (),
    progress: Progress | None = None,
    statistics: str | Path | None = None,
    ranks: Ranks | None = None,
    strict: bool = False,
) -> Calibrated:
    """The first half of `quantize`, with its arguments: a model prepared, placed, calibrated and refined.

    `folder` is where files will be written: one that the model is read from is refused now.
    """
    clock = Clock()
    say = progress or (lambda stage, done, total: None)
    with in_step(ranks):
        with clock.stage("load"):
            settings = read_config(
                config,
                unused=_given_otherwise(backend, data),
                data=str(data) if isinstance(data, str | Path) else None,
            )
            data = settings.data if data is None else data
            strict = strict or settings.strict
            graph = load_model(model)
            fix_borders(graph, settings)
            original = graph.copy()
            target = chosen_backend(backend, settings)
            if folder is not None:
                refuse_overwriting(original, target, folder, settings.name, float_model=True)
            check_borders(graph)
            dataset = None if data is None and not target.needs_data else _opened(data, graph, settings)
            for one in (graph, original):
                separate_sizes(one, dataset)
        with clock.stage("passes"):
            say("passes", 0, None)
            prepared = prepare(graph, backend, settings, passes=passes)
        with clock.stage("place"):
            plan = make_plan(prepared, strict=strict)
    with clock.stage("calibrate"), own_fault(original, dataset):
        file = None if statistics is None else Path(statistics)
        gathered = gather_statistics(prepared, plan, dataset, file=file, ranks=ranks, progress=progress)

        def gather_again(changed: QuantPlan) -> Gathered:
            return gather_statistics(prepared, changed, dataset, file=file, progress=progress)

        qparams, plan, calibration = calibrate_with_tails(prepared, plan, gathered, gather_again, strict=strict)
    with clock.stage("refine"), own_fault(original, dataset):
        refined = refine(prepared.graph, plan, qparams, prepared.backend)
    return Calibrated(
        original,
        prepared,
        plan,
        refined.qparams,
        dataset,
        calibration.samples,
        warnings=[*plan.notes, *calibration.warnings, *refined.warnings],
        notes=[
            *original.remarks,
            *([NO_DATA] if dataset is None else dataset.notes),
            *tail_notes(plan),
            *calibration.notes,
            *refined.notes,
        ],
        seconds=clock.seconds,
    )


def _given_otherwise(backend: object, data: object) -> list[str]:
    """Keys of the configuration that arguments stand in the place of."""
    return [key for key, value in (("backend", backend), ("data", data)) if value is not None]


NO_DATA = "no data was given: weights have their parameters, and accuracy was not measured"


def _opened(data: Any, graph: Graph, settings: Config) -> Dataset:
    return open_dataset(data, input_infos(graph), limit=settings.samples, preprocess=settings.preprocess)


def improve_model(
    ready: Calibrated, folder: Path, *, progress: Progress | None = None, reached: Reached | None = None
) -> tuple[Calibrated, Outcome | None]:
    """What the configuration's effort makes of a calibrated model, and what was tried; None if nothing was.

    What long steps have done so far stands in `folder`/improving until the files are written, and is used by the next
    run of the same command. `reached` gets what each level of the effort has come to.
    """
    dataset = ready.dataset
    clock = Clock(dict(ready.seconds))
    prepared = ready.prepared
    calibrated = State(prepared.graph, ready.plan, ready.qparams)
    notes: list[str] = []
    with clock.stage("improve"), own_fault(ready.original, dataset):
        if dataset is None:
            outcome = improve_without_data(prepared, calibrated, progress=progress)
        else:
            outcome, notes = improve_calibrated(
                prepared,
                calibrated,
                dataset,
                calibrate_again,
                folder=folder / IMPROVING,
                progress=progress,
                reached=reached,
            )
    if outcome is None:
        return replace(ready, notes=[*ready.notes, *notes]), None
    changed = replace(ready.with_state(outcome.state), notes=[*ready.notes, *notes], seconds=clock.seconds)
    return changed, outcome


IMPROVING = "improving"
"""Folder of unfinished work on improvements, below that of the files."""


def calibrate_again(prepared: Prepared, plan: QuantPlan, dataset: Dataset | Samples) -> State:
    """All parameters anew, for a graph whose constants have changed."""
    gathered = gather_statistics(prepared, plan, dataset)
    qparams, plan, _ = calibrate(prepared.graph, plan, statistics=gathered)
    return State(prepared.graph, plan, refine(prepared.graph, plan, qparams, prepared.backend).qparams)


def _with_improvements(stage: Path, ready: Calibrated, outcome: Outcome) -> dict[str, Any]:
    """The float model with the constants that improvements have changed, and the entry of the report."""
    if any(step.applied for step in outcome.steps):
        ready.prepared.graph.save(stage / f"{ready.prepared.config.name}{FLOAT_MODEL}", given_names=True)
    return {"improvements": outcome.to_json()}


def contribute(
    model: str | Path | onnx.ModelProto | Graph,
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
        pass  # the first one claims the output folder
    with in_step(ranks):
        settings = read_config(config, unused=_given_otherwise(backend, data))
        data = settings.data if data is None else data
        graph = load_model(model)
        fix_borders(graph, settings)
        needed = data is not None or chosen_backend(backend, settings).needs_data
        dataset = _opened(data, graph, settings) if needed else None
        separate_sizes(graph, dataset)
        prepared = prepare(graph, backend, settings, passes=passes)
        plan = make_plan(prepared)
    file = None if statistics is None else Path(statistics)
    gather_statistics(prepared, plan, dataset, file=file, ranks=ranks)


def gather_statistics(
    prepared: Prepared,
    plan: QuantPlan,
    dataset: Dataset | Samples | None,
    *,
    file: Path | None = None,
    shard: Shard | None = None,
    fresh: bool = False,
    ranks: Ranks | None = None,
    progress: Progress | None = None,
) -> Gathered:
    """What the observers of a plan need to see: in memory, in a file, or by several processes together."""
    leaders = activation_leaders(plan)
    engine = prepared.config.engine()

    def report(done: int, total: int | None) -> None:
        if progress is not None:
            progress("calibrate", done, total)

    if not leaders:
        return Gathered()
    assert dataset is not None  # a target that observes activations was not let through without
    if ranks is not None:
        with in_step(ranks):
            whole = gather_shared(
                ranks, prepared.graph, leaders, dataset, path=file, engine=engine, fresh=fresh, progress=report
            )
        return whole
    if file is not None:
        return gather_into(
            file, prepared.graph, leaders, dataset, engine=engine, shard=shard, fresh=fresh, progress=report
        )
    return gather(prepared.graph, leaders, dataset, engine=engine, shard=shard, progress=report)
