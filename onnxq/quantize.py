"""The whole flow as one function: model in, checked files out."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import onnx

from onnxq.config import ConfigSource, read_config
from onnxq.diagnose.automatic import examiner
from onnxq.distributed import Ranks, in_step
from onnxq.graph import Graph
from onnxq.output_folder import claim
from onnxq.passes import Pass
from onnxq.pipeline.artifacts import FLOAT_MODEL, Result, emit_plan
from onnxq.pipeline.run import (
    IMPROVING,
    Calibrated,
    calibrate_model,
    gather_statistics,
    given_otherwise,
    improve_model,
    opened,
)
from onnxq.progress import Progress
from onnxq.ptq.method import State, read_improvement
from onnxq.ptq.search.outcome import Outcome
from onnxq.ptq.search.stage import remove_stale_values, remove_unfinished
from onnxq.session.model_io import fix_borders, separate_sizes
from onnxq.session.prepare import chosen_backend, load_model, make_plan, prepare
from onnxq.types import Backend


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
        settings = read_config(config, unused=given_otherwise(backend, data))
        data = settings.data if data is None else data
        graph = load_model(model)
        fix_borders(graph, settings)
        needed = data is not None or chosen_backend(backend, settings).needs_data
        dataset = opened(data, graph, settings) if needed else None
        separate_sizes(graph, dataset)
        prepared = prepare(graph, backend, settings, passes=passes)
        plan = make_plan(prepared)
    file = None if statistics is None else Path(statistics)
    gather_statistics(prepared, plan, dataset, file=file, ranks=ranks)
