"""The files between the stages: plans and parameters read with errors that name the file, outputs written whole."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from onnxq.errors import ConfigError, OnnxqError, SpecError
from onnxq.files import write_json
from onnxq.json_file import JsonMapping, Stored, read_object, validated
from onnxq.types import QParamsTable, QuantPlan
from onnxq.types.plan import PLAN_FORM
from onnxq.types.qparams import QPARAMS_FORM

T = TypeVar("T")

PLAN_NAME, QPARAMS_NAME = "plan.json", "qparams.json"


def folder_of(path: Path) -> Path:
    """The folder of a run that a path names, by itself or by a file in it."""
    return path if path.is_dir() else path.parent


def read_plan(path: Path) -> QuantPlan:
    """A plan from its file, or from the folder that holds plan.json."""
    from onnxq.cli.schemas import PlanSchema  # pydantic takes its time to make them

    return _read(path / PLAN_NAME if path.is_dir() else path, PLAN_FORM, PlanSchema, QuantPlan.from_json, "plan")


def read_qparams(path: Path) -> QParamsTable:
    """Parameters from their file, or from the folder that holds qparams.json."""
    file = path / QPARAMS_NAME if path.is_dir() else path
    from onnxq.cli.schemas import ParametersSchema

    return _read(file, QPARAMS_FORM, ParametersSchema, QParamsTable.from_json, "parameter table")


def _read(path: Path, form: str, schema: type[Stored], parse: Callable[[JsonMapping], T], what: str) -> T:
    data = read_object(path, what)
    if data.get("format") == form:  # of anything else, `parse` says what it is
        validated(schema, data, str(path))
    try:
        return parse(data)
    except OnnxqError as error:
        raise SpecError(f"{path}: {error}") from None


def output_file(path: Path, name: str, *inputs: Path) -> Path:
    """Where a single result goes: `path`, or `name` in it when it is a folder; never one of the inputs.

    What does not exist and has no suffix becomes a folder; a file has the suffix of `name`.
    """
    target = path / name if path.is_dir() or not (path.suffix or path.exists()) else path
    for given in inputs:
        if target.exists() and given.exists() and os.path.samefile(target, given):
            raise ConfigError(f"the output would overwrite the input {given}; choose another file with -o")
    wanted = Path(name).suffix
    if target.suffix != wanted:
        raise ConfigError(f"the output is a {wanted} file, got {path}: give a name that ends in {wanted}, or a folder")
    if target.exists() and not target.is_file():
        raise ConfigError(f"the output {target} is there already and no regular file: choose another with -o")
    check_writable(target.parent)
    return target


def write_output(path: Path, data: Any) -> None:
    """Write JSON whole or not at all, making the folder if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, data)


def check_statistics_file(path: Path | None, model: Path, data: str | None = None) -> None:
    """Refuse a place for statistics that is no .npz file, or is an input: the model or the data."""
    if path is None:
        return
    if path.suffix != ".npz":
        raise ConfigError(f"statistics are kept in a .npz file, got {path}")
    if path.is_dir():
        raise ConfigError(f"statistics are kept in a file, {path} is a folder: give another name")
    output_file(path, path.name, model, *(() if data is None else (Path(data),)))


def check_writable(folder: Path) -> None:
    """Fail before minutes of work rather than after, when files could not be written into `folder` in the end."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"the output must be a folder, {folder} is a file")
    existing = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        raise ConfigError(f"cannot write into {folder}: {error.strerror}; choose another place with -o") from None
