"""A finished run in MLflow: what `--mlflow` logs, and `log_run` for runs that are there already.

    from onnxq.integrations.mlflow import log_run

    log_run("out/")

Where to is MLflow's own business: MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME, or the run that is active.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from onnxq.errors import ConfigError
from onnxq.escapes import one_line
from onnxq.json_file import JsonMapping, read_object
from onnxq.pipeline.artifacts import REPORT

LONGEST_VALUE = 500
"""Letters of a parameter; every store takes as many. config.json is among the artifacts and has all."""

COURSE = "training.csv"
FOLDERS_ARTIFACTS = "onnxq"


def open_store() -> None:
    """Asked for before a run begins, so that nothing is lost at its end: the library, and a store that takes runs."""
    mlflow = mlflow_module()
    with _refusals(mlflow, "MLflow takes no runs"):
        mlflow.MlflowClient().search_experiments(max_results=1)


@contextmanager
def _refusals(mlflow: Any, what: str) -> Iterator[None]:
    """A store that cannot be reached or written is no fault of onnxq."""
    try:
        yield
    except mlflow.exceptions.MlflowException as error:
        said = one_line(str(error).strip().rstrip("."))
        raise ConfigError(
            f"{what}: {said}. MLFLOW_TRACKING_URI says where to: the address of a server, or with the whole library "
            "(pip install mlflow) a data base such as sqlite:///mlflow.db"
        ) from error


def mlflow_module() -> Any:
    """The library."""
    try:
        import mlflow
    except ImportError as error:
        raise ConfigError(
            f"logging to MLflow needs the library, which cannot be imported ({error}): pip install mlflow, or "
            "mlflow-skinny for a server that there is"
        ) from error
    return mlflow


def log_run(folder: str | Path) -> str:
    """Log the run whose files are in `folder`, and return the number that MLflow gave it.

    Parameters are the target and the settings that were given, metrics what was measured, artifacts all files, tags
    versions and names. A run that is active already gets them; otherwise one is begun and ended.
    """
    mlflow, place = mlflow_module(), Path(folder)
    report = read_object(place / REPORT, "report")
    with _refusals(mlflow, f"the files of the run are in {place}, but MLflow has not taken it"):
        active = mlflow.active_run()
        with nullcontext(active) if active is not None else mlflow.start_run(run_name=_run_name(report)) as run:
            mlflow.set_tags(_tags(report))
            mlflow.log_params(dict(parameters(report)))
            mlflow.log_metrics(dict(metrics(report, place)))
            for step, values in _course(place / COURSE):
                mlflow.log_metrics(values, step=step)
            for name in sorted({Path(path).name for path in report["files"]}):
                if (place / name).is_file():
                    mlflow.log_artifact(str(place / name), artifact_path=FOLDERS_ARTIFACTS)
            return str(run.info.run_id)


def _run_name(report: JsonMapping) -> str:
    model = report.get("model")
    return f"{Path(model).stem if model else 'model'} {report['backend']}"


def _tags(report: JsonMapping) -> dict[str, str]:
    versions = {f"onnxq.versions.{name}": str(version) for name, version in report["versions"].items()}
    return {"onnxq.backend": str(report["backend"]), "onnxq.model": str(report.get("model") or ""), **versions}


def parameters(report: JsonMapping) -> Iterator[tuple[str, str]]:
    """The target and each setting that was given, tables with their keys joined by dots."""
    yield "backend", str(report["backend"])
    yield from _flat(report["config"]["given"])
    training = report.get("training")
    if training is not None:
        yield from _flat(training["settings"], "training.")


def _flat(values: JsonMapping, before: str = "") -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        elif f"{before}{key}" != "backend" and value is not None:
            yield _name(f"{before}{key}"), str(value)[:LONGEST_VALUE]


def metrics(report: JsonMapping, folder: Path) -> Iterator[tuple[str, float]]:
    """What was measured, by the names of the report."""
    ratios = {output: float(value) for output, value in report["sqnr_db"].items()}
    for output, value in ratios.items():
        if math.isfinite(value):  # equal outputs have none
            yield _name(f"sqnr_db.{output}"), value
    if math.isfinite(min(ratios.values(), default=math.inf)):
        yield "worst_sqnr_db", min(ratios.values())
    for key in ("nodes", "quantized", "fused", "float"):
        yield f"coverage.{key}", report["coverage"][key]
    sizes = {"file_bytes": folder / f"{_file_stem(report)}.onnx", "float_bytes": Path(report.get("model") or "")}
    for key, path in sizes.items():
        if path.is_file():
            beside = path.with_name(f"{path.name}.data")
            yield key, path.stat().st_size + (beside.stat().st_size if beside.is_file() else 0)
    for key, value in (report.get("speed") or {}).items():
        if isinstance(value, int | float):
            yield f"speed.{key}", value
    for stage, seconds in report["seconds"].items():
        yield f"seconds.{stage}", seconds
    for key in ("before", "after"):
        measured = (report.get("training") or {}).get(key)
        if isinstance(measured, int | float):
            yield f"training.{key}", measured


def _file_stem(report: JsonMapping) -> str:
    """The name of the files, which is `model` unless a setting says otherwise."""
    return str(report["config"]["given"].get("name", "model"))


def _course(path: Path) -> Iterator[tuple[int, dict[str, float]]]:
    """The rows of training.csv: step -> losses, learning rate, metric, where they have a value."""
    if not path.is_file():
        return
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            step = int(row.pop("step"))
            yield step, {f"training.{key}": float(value) for key, value in row.items() if value}


def _name(text: str) -> str:
    """A name with nothing but what MLflow takes; names of tensors hold brackets and colons."""
    return re.sub(r"[^\w .\-/]", "_", text).strip("/ ") or "_"
