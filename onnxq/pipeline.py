"""The whole flow as one function: model in, checked files out."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from onnxq.calibrate import CalibrationReport, calibrate
from onnxq.config import Config, read_config
from onnxq.deliver import MODEL_NAME, Clock, Progress, Result, emit_plan
from onnxq.errors import ConfigError
from onnxq.graph import Graph
from onnxq.passes import Pass
from onnxq.prepare import Prepared, check_borders, load_model, make_plan, prepare
from onnxq.runtime import Dataset, input_infos, open_dataset
from onnxq.types import Backend, QParamsTable, QuantPlan


def quantize(
    model: str | Path | onnx.ModelProto | Graph,
    *,
    backend: str | Backend,
    data: Any = None,
    config: Config | Mapping[str, Any] | str | Path | None = None,
    out: str | Path | None = None,
    passes: Sequence[str | Pass] = (),
    progress: Progress | None = None,
    warnings: Sequence[str] = (),
) -> Result:
    """Quantize a model for a backend and write model.onnx, plan.json, qparams.json and report.json into `out`.

    data      calibration samples: .npz / .npy file, folder, iterable of feeds, CalibrationDataReader, "module:function"
    config    see `onnxq.config.Config`
    out       folder for the files; None makes a new temporary folder, which is the caller's to delete
    passes    the caller's own graph passes, run after the backend's
    warnings  what the caller knows about the run (random data), for the report

    The files appear only when every check of them has passed; otherwise CheckFailed is raised and `out` is untouched.
    """
    clock = Clock()
    say = progress or (lambda stage, done, total: None)
    folder = _output_folder(out, model)
    with clock.stage("load"):
        graph = load_model(model)
        original = graph.copy()
        check_borders(graph)
        settings = read_config(config)
        dataset = open_dataset(data, input_infos(graph), limit=settings.samples, preprocess=settings.preprocess)
    with clock.stage("passes"):
        say("passes", 0, None)
        prepared = prepare(graph, backend, config, passes=passes)
    with clock.stage("place"):
        plan = make_plan(prepared)
    with clock.stage("calibrate"):
        qparams, calibration, plan = run_calibration(prepared, plan, dataset, say)
    return emit_plan(
        original,
        prepared,
        plan,
        qparams,
        folder,
        dataset=dataset,
        samples=calibration.samples,
        warnings=[*warnings, *calibration.warnings],
        notes=[*dataset.notes, *calibration.notes],
        seconds=clock.seconds,
        progress=progress,
    )


def run_calibration(
    prepared: Prepared, plan: QuantPlan, dataset: Dataset, progress: Progress | None = None
) -> tuple[QParamsTable, CalibrationReport, QuantPlan]:
    """Ranges for a plan; returns the parameters, the calibration report and the plan without what no sample reached."""
    say = progress or (lambda stage, done, total: None)
    result = calibrate(prepared.graph, plan, dataset, progress=lambda done, total: say("calibrate", done, total))
    return result.qparams, result.report, result.plan


def _output_folder(out: str | Path | None, model: Any) -> Path:
    if out is None:
        return Path(tempfile.mkdtemp(prefix="onnxq-"))
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"the output must be a folder, {folder} is a file")
    source = model.path if isinstance(model, Graph) else model
    if isinstance(source, str | Path):
        target = folder / f"{MODEL_NAME}.onnx"
        if target.exists() and os.path.exists(source) and os.path.samefile(source, target):
            raise ConfigError(f"the output would overwrite the input {source}; choose another folder with -o")
    return folder
