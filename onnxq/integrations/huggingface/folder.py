"""A folder with config.json, tokenizer files and model.onnx in; the same out, with quantized models beside it.

Where genai_config.json names the decoder, the quantized one takes its place, under its name. Everything else of the
folder is kept as it is. What a run has decided and measured (report.html, report.json, plan.json ...)
lies in onnxq/DTYPE/ of the new folder.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx

from onnxq.config import Config, ConfigSource, read_config
from onnxq.errors import ConfigError, ModelError, OnnxqWarning, did_you_mean
from onnxq.files import write_json
from onnxq.graph import Graph
from onnxq.graph.load import parse_model
from onnxq.integrations.huggingface.decoder import Decoder
from onnxq.integrations.huggingface.genai_config import GenaiConfig, read_genai_config
from onnxq.integrations.huggingface.image_steps import PREPROCESSOR, image_steps
from onnxq.integrations.huggingface.kv_cache import BITS, CacheReport, quantize_cache
from onnxq.integrations.huggingface.prompts import SAMPLED_NEEDS, Prompts, read_prompts
from onnxq.integrations.huggingface.sampling import Sampled
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
    cache: CacheReport | None = None

    def to_json(self) -> JsonObject:
        return {
            "dtype": self.dtype,
            "model": str(self.model),
            "float_model": str(self.float_model),
            "backend": self.report["backend"],
            "bytes": [_bytes(self.float_model), _bytes(self.model)],
            "sqnr_db": dict(self.report["sqnr_db"]),
            "warnings": list(self.report["warnings"]),
            **({} if self.cache is None else {"kv_cache": self.cache.to_json()}),
        }


def quantize_folder(
    folder: str | Path,
    out: str | Path,
    *,
    dtypes: Sequence[str] = (),
    data: Any = None,
    file: str | None = None,
    keep_float: bool = True,
    options: Mapping[str, str] | None = None,
    kv_cache: str | None = None,
    config: ConfigSource = None,
    progress: Progress | bool | None = None,
) -> list[Quantized]:
    """Copy a folder to `out`, with quantized models in the places where Optimum and transformers.js look for them.

    dtypes      names of transformers.js (q8, uint8, int8, q4, q2, bnb4) or of language models (w8a16, w4a16, w4a8),
                each a file of its own. By default q8; w4a16 where genai_config.json is, whose decoder has one dtype
    data        a .txt file with a text in each line, which the folder's tokenizer reads; for a decoder with past keys
                and values also a .npz file of prompts, as numbers of tokens, or `sampled` (`sampled:64x256@1`: 64
                prompts of 256 tokens, seed 1), which the float model writes itself; images, which are prepared as
                preprocessor_config.json says; or other data of `onnxq.quantize`
    file        the float model, from `folder`, where there are several; without it each of them is quantized
    keep_float  copy the float models as well (not where genai_config.json is)
    options     options of the dtypes' targets, such as {"block": "128"}
    kv_cache    int8 or int4: the cache of GroupQueryAttention too, calibrated on the prompts
    config      settings, as for `onnxq.quantize`, but without a backend: the dtypes have theirs

    `out` must not exist, or be empty. It appears when every file has passed its checks, or not at all.
    """
    source, target = Path(folder), Path(out)
    genai = read_genai_config(source) if source.is_dir() else None
    names = tuple(dict.fromkeys(dtypes)) or (("q8",) if genai is None else ("w4a16",))
    for name in names:
        if name not in DTYPES:
            raise ConfigError(f"there is no dtype '{name}'.{did_you_mean(name, DTYPES)} Known: {', '.join(DTYPES)}")
    if genai is not None and len(names) > 1:
        raise ConfigError(f"{genai.path} names one file for the decoder: give one dtype, not {', '.join(names)}")
    if genai is not None and file not in (None, genai.filename):
        raise ConfigError(f"{genai.path} says that the decoder is '{genai.filename}': leave out '{file}'")
    models = _float_models(source, file) if genai is None else [source / genai.filename]
    settings = read_config(config)
    if settings.backend is not None:
        raise ConfigError("the dtype names the target: leave backend out of the configuration")
    _check_places(source, target)
    _check_external(models)
    if kv_cache is not None and kv_cache not in BITS:
        raise ConfigError(f"kv_cache is {' or '.join(BITS)}, not '{kv_cache}'")
    target.parent.mkdir(parents=True, exist_ok=True)
    made = []
    with temporary_folder(inside=target.parent) as stage, warnings.catch_warnings():
        warnings.simplefilter("ignore", OnnxqWarning)  # they are in the reports, and said below
        whole = stage / "folder"
        left_out = models if genai else [] if keep_float else _float_models(source, None)
        shutil.copytree(source, whole, ignore=_without(left_out))
        for model in models:
            for name in names:
                place = _Place(source, whole, model, name, several=len(models) > 1, genai=genai)
                made.append(_add(place, settings, data, progress, options or {}, kv_cache))
        if target.exists():
            target.rmdir()
        whole.rename(target)
    made = [replace(one, model=target / one.model.relative_to(whole)) for one in made]
    for one in made:
        warn_of((f"{one.model.name}: {text}" for text in folded(one.report["warnings"])), stacklevel=2)
    return made


@dataclass(frozen=True)
class _Place:
    """Where a model comes from, and where what becomes of it goes."""

    source: Path
    whole: Path
    model: Path
    dtype: str
    several: bool
    genai: GenaiConfig | None

    @property
    def run(self) -> Path:
        """The folder for what the run leaves."""
        return self.whole / RUNS / (f"{self.model.stem}-{self.dtype}" if self.several else self.dtype)

    @property
    def stem(self) -> str:
        return self.model.stem if self.genai else f"{self.model.stem}{DTYPES[self.dtype].suffix}"

    @property
    def folder(self) -> Path:
        return self.whole / self.model.relative_to(self.source).parent


def _add(
    place: _Place,
    settings: Config,
    data: Any,
    progress: Progress | bool | None,
    options: Mapping[str, str],
    kv_cache: str | None,
) -> Quantized:
    """Quantize one model for one dtype; its files go to their places in the new folder."""
    dtype, graph = DTYPES[place.dtype].with_options(options), Graph.load(place.model)
    backend = dtype.without_data if data is None else dtype.target
    if backend is None:
        raise ConfigError(
            f"dtype {place.dtype} quantizes what flows between layers too, and has to see data for it: give a .txt "
            "file with texts, images, or feeds (docs/integrations.md); "
            f"{', '.join(key for key, value in DTYPES.items() if value.without_data)} take none"
        )
    changes = {key: value for key, value in dtype.settings.items() if key not in settings.model_fields_set}
    changes |= _preprocess(place.source, data, settings)
    samples = _samples(data, place, graph, settings.samples)
    if kv_cache is not None and not isinstance(samples, Prompts):
        raise ConfigError(
            f"a cache of {kv_cache} is calibrated on prompts, and is that of a decoder with past keys and values: give "
            "such a folder and a .txt or .npz file of prompts (docs/language-models.md)"
        )
    result: Result = quantize(
        place.model,
        backend=backend,
        data=samples,
        config=read_config(settings, name=place.stem, **changes),
        out=place.run,
        progress=progress,
    )
    cache = None
    if kv_cache is not None:
        assert isinstance(samples, Prompts)
        cache = quantize_cache(result.model, samples.prompts, kv_cache, place.genai)
        write_json(place.run / "kv_cache.json", cache.to_json())
    for path in (result.model, *external_files(result.model)):
        shutil.move(path, place.folder / path.name)
    return Quantized(place.dtype, place.folder / result.model.name, place.model, result.report, cache)


def _samples(data: Any, place: _Place, graph: Graph, limit: int | None) -> Any:
    decoder = None if data is None else Decoder.of(graph, place.genai)
    if decoder is not None:
        return read_prompts(data, place.source, decoder, graph) or data
    if Sampled.of(data) is not None:
        raise ConfigError(SAMPLED_NEEDS.format(data=data, model=place.model.name))
    if isinstance(data, str | Path) and Path(data).suffix == ".txt":
        return Texts(Path(data), place.source, input_infos(graph), limit)
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


def _check_external(models: Sequence[Path]) -> None:
    """Weights that lie beside a model are there, before anything is copied."""
    for model in models:
        for path in external_files(model):
            if not path.is_file():
                raise ModelError(f"'{model}' keeps weights in '{path.name}', which is not beside it: copy it there")


def _without(models: Sequence[Path]) -> Any:
    """What copytree leaves out: these models and their external data."""
    files = {file.resolve() for model in models for file in (model, *external_files(model))}
    return lambda place, names: [name for name in names if (Path(place) / name).resolve() in files]


def external_files(model: Path) -> list[Path]:
    """The files that hold the weights of a model beside it."""
    names = {
        entry.value
        for tensor in _initializers(parse_model(model).graph)
        if tensor.data_location == onnx.TensorProto.EXTERNAL
        for entry in tensor.external_data
        if entry.key == "location"
    }
    return [model.parent / name for name in sorted(names)]


def _initializers(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Those of bodies too: a merged decoder has its weights there."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            for body in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
                yield from _initializers(body)


def _bytes(model: Path) -> int:
    return sum(path.stat().st_size for path in (model, *external_files(model)))
