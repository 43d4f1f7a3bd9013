"""A folder with config.json, tokenizer files and model.onnx in; the same out, with quantized models beside it.

Everything of the folder is kept as it is. What a run has decided and measured (report.html, report.json, plan.json ...)
lies in onnxq/DTYPE/ of the new folder.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx

from onnxq.config import Config, ConfigSource, read_config
from onnxq.errors import ConfigError, OnnxqWarning, did_you_mean
from onnxq.graph import Graph
from onnxq.integrations.huggingface.image_steps import PREPROCESSOR, image_steps
from onnxq.integrations.huggingface.texts import Texts
from onnxq.json_file import JsonMapping, JsonObject
from onnxq.pipeline.artifacts import Result
from onnxq.progress import Progress
from onnxq.quantize import quantize
from onnxq.runtime import input_infos
from onnxq.runtime.sources import holds_images
from onnxq.targets.transformers_dtypes import DTYPES, OTHER_SUFFIXES
from onnxq.temporary import temporary_folder
from onnxq.types.note import folded
from onnxq.warned import warn_of

RUNS = "onnxq"
"""The folder for what runs leave, inside the new folder."""

SUFFIXES = (*(dtype.suffix for dtype in DTYPES.values()), *OTHER_SUFFIXES)


@dataclass(frozen=True)
class Quantized:
    """A file that was made: for which dtype, from which model, and the report of its run."""

    dtype: str
    model: Path
    float_model: Path
    report: JsonMapping

    def to_json(self) -> JsonObject:
        return {
            "dtype": self.dtype,
            "model": str(self.model),
            "float_model": str(self.float_model),
            "backend": self.report["backend"],
            "bytes": [_bytes(self.float_model), _bytes(self.model)],
            "sqnr_db": dict(self.report["sqnr_db"]),
            "warnings": list(self.report["warnings"]),
        }


def quantize_folder(
    folder: str | Path,
    out: str | Path,
    *,
    dtypes: Sequence[str] = ("q8",),
    data: Any = None,
    file: str | None = None,
    keep_float: bool = True,
    config: ConfigSource = None,
    progress: Progress | bool | None = None,
) -> list[Quantized]:
    """Copy a folder to `out`, with quantized models in the places where Optimum and transformers.js look for them.

    dtypes      names of transformers.js (q8, uint8, q4, q2); each is a file of its own
    data        a .txt file with a text in each line, which the folder's tokenizer reads; images, which are prepared as
                preprocessor_config.json says; or other data of `onnxq.quantize`
    file        the float model, from `folder`, where there are several; without it each of them is quantized
    keep_float  copy the float models as well
    config      settings, as for `onnxq.quantize`, but without a backend: the dtypes have theirs

    `out` must not exist, or be empty. It appears when every file has passed its checks, or not at all.
    """
    source, target = Path(folder), Path(out)
    for name in dtypes:
        if name not in DTYPES:
            raise ConfigError(f"there is no dtype '{name}'.{did_you_mean(name, DTYPES)} Known: {', '.join(DTYPES)}")
    models, settings = _float_models(source, file), read_config(config)
    if settings.backend is not None:
        raise ConfigError("the dtype names the target: leave backend out of the configuration")
    _check_places(source, target)
    target.parent.mkdir(parents=True, exist_ok=True)
    made = []
    with temporary_folder(inside=target.parent) as stage, warnings.catch_warnings():
        warnings.simplefilter("ignore", OnnxqWarning)  # they are in the reports, and said below
        whole = stage / "folder"
        shutil.copytree(source, whole, ignore=None if keep_float else _without(source))
        for model in models:
            for name in dict.fromkeys(dtypes):
                made.append(_add(model, name, source, whole, settings, data, progress, several=len(models) > 1))
        if target.exists():
            target.rmdir()
        whole.rename(target)
    made = [replace(one, model=target / one.model.relative_to(whole)) for one in made]
    for one in made:
        warn_of((f"{one.model.name}: {text}" for text in folded(one.report["warnings"])), stacklevel=2)
    return made


def _add(
    model: Path,
    name: str,
    source: Path,
    whole: Path,
    settings: Config,
    data: Any,
    progress: Progress | bool | None,
    *,
    several: bool,
) -> Quantized:
    """Quantize one model for one dtype; its files go to their places in the new folder."""
    dtype, graph = DTYPES[name], Graph.load(model)
    backend = dtype.without_data if data is None else dtype.target
    if backend is None:
        raise ConfigError(
            f"dtype {name} quantizes what flows between layers too, and has to see data for it: give a .txt file with "
            "texts, images, or feeds (docs/integrations.md); "
            f"{', '.join(key for key, value in DTYPES.items() if value.without_data)} take none"
        )
    run = whole / RUNS / (f"{model.stem}-{name}" if several else name)
    stem = f"{model.stem}{dtype.suffix}"
    changes = {key: value for key, value in dtype.settings.items() if key not in settings.model_fields_set}
    changes |= _preprocess(source, data, settings)
    result: Result = quantize(
        model,
        backend=backend,
        data=_samples(data, source, graph, settings.samples),
        config=read_config(settings, name=stem, **changes),
        out=run,
        progress=progress,
    )
    place = whole / model.relative_to(source).parent
    for path in (result.model, *_external(result.model)):
        shutil.move(path, place / path.name)
    return Quantized(name, place / result.model.name, model, result.report)


def _samples(data: Any, source: Path, graph: Graph, limit: int | None) -> Any:
    if isinstance(data, str | Path) and Path(data).suffix == ".txt":
        return Texts(Path(data), source, input_infos(graph), limit)
    return data


def _preprocess(source: Path, data: Any, settings: Config) -> JsonObject:
    if settings.preprocess is not None or not isinstance(data, str | Path) or not holds_images(Path(data)):
        return {}
    steps = image_steps(source)
    if steps is None:
        raise ConfigError(f"{source} has no {PREPROCESSOR} that says how images are prepared: set preprocess")
    return {"preprocess": steps}


def _float_models(folder: Path, file: str | None) -> list[Path]:
    """The models of a folder that nobody has quantized, by the names that transformers.js gives the others."""
    if not folder.is_dir():
        raise ConfigError(f"{folder} is no folder: give the one that holds config.json and model.onnx")
    if file is not None:
        if not (folder / file).is_file():
            raise ConfigError(f"{folder} has no file '{file}'")
        return [folder / file]
    found = [path for place in (folder / "onnx", folder) for path in sorted(place.glob("*.onnx"))]
    models = [path for path in found if not path.stem.endswith(SUFFIXES)]
    if not models:
        also = f", only {', '.join(path.name for path in found)}" if found else ""
        raise ConfigError(
            f"{folder} holds no float model (model.onnx or onnx/model.onnx){also}. Optimum makes one: optimum-cli "
            "export onnx --model NAME FOLDER"
        )
    return models


def _check_places(source: Path, target: Path) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigError(f"{target} exists already: give a new folder, or an empty one")
    if target.resolve().is_relative_to(source.resolve()):
        raise ConfigError(f"{target} lies inside of {source}, which is copied: give a folder outside of it")


def _without(source: Path) -> Any:
    """What copytree leaves out: the float models and their external data."""
    files = {file.resolve() for model in _float_models(source, None) for file in (model, *_external(model))}
    return lambda place, names: [name for name in names if (Path(place) / name).resolve() in files]


def _external(model: Path) -> list[Path]:
    """The files that hold the weights of a model beside it."""
    proto = onnx.load(model, load_external_data=False)
    names = {
        entry.value
        for tensor in proto.graph.initializer
        if tensor.data_location == onnx.TensorProto.EXTERNAL
        for entry in tensor.external_data
        if entry.key == "location"
    }
    return [model.parent / name for name in sorted(names)]


def _bytes(model: Path) -> int:
    return sum(path.stat().st_size for path in (model, *_external(model)))
