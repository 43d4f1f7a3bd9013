"""A model calibrated and improved: everything before its files are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx

from onnxq.calibrate import Gathered, activation_leaders, calibrate, gather, gather_into, gather_shared
from onnxq.config import Config, ConfigSource, read_config
from onnxq.distributed import Ranks, in_step
from onnxq.graph import Graph
from onnxq.passes import Pass
from onnxq.pipeline.artifacts import refuse_overwriting
from onnxq.progress import Clock, Progress, silent
from onnxq.ptq.method import Samples, State
from onnxq.ptq.search.outcome import Outcome, Reached
from onnxq.ptq.search.stage import improve_calibrated
from onnxq.ptq.search.unjudged import improve_without_data
from onnxq.refine import refine
from onnxq.runtime import Dataset, input_infos, open_dataset
from onnxq.runtime.fault import own_fault
from onnxq.runtime.samples import Shard
from onnxq.session.float_tails import calibrate_with_tails, tail_notes
from onnxq.session.model_io import check_borders, fix_borders, separate_sizes
from onnxq.session.prepare import Prepared, chosen_backend, load_model, make_plan, prepare
from onnxq.types import Backend, QParamsTable, QuantPlan


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
    say = progress or silent
    with in_step(ranks):
        with clock.stage("load"):
            settings = read_config(
                config,
                unused=given_otherwise(backend, data),
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
            dataset = None if data is None and not target.needs_data else opened(data, graph, settings)
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


def given_otherwise(backend: object, data: object) -> list[str]:
    """Keys of the configuration that arguments stand in the place of."""
    return [key for key, value in (("backend", backend), ("data", data)) if value is not None]


NO_DATA = "no data was given: weights have their parameters, and accuracy was not measured"


def opened(data: Any, graph: Graph, settings: Config) -> Dataset:
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
