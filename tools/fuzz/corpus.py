"""The files that mutations start from: small models, and whatever onnxq itself writes and reads for some of them.

Models are those of the tests. Plans, parameters, statistics, caches and checkpoints are made by running onnxq, each in
a process of its own, once for a run of the fuzzer.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import onnxq.demo
from onnxq.targets import BACKENDS
from tests.golden_graphs import GOLDEN
from tests.zoo import ZOO
from tools.fuzz.formats.archives import NPZ, ZIP
from tools.fuzz.formats.documents import JSON, JSON_LINES, TOML, YAML
from tools.fuzz.formats.format import Format, plain
from tools.fuzz.formats.npy import NPY
from tools.fuzz.formats.onnx_models import MODEL
from tools.fuzz.formats.pictures import PNG
from tools.fuzz.formats.statistics import STATISTICS
from tools.fuzz.kinds import Kind

ROOT = Path(__file__).resolve().parents[2]
DIALECTS = ROOT / "tests"
DIGITS = "digits"
SAMPLES = 4

RUNS = (
    (DIGITS, "onnxruntime"),
    (DIGITS, "tensorrt"),
    (DIGITS, "vitis"),
    (DIGITS, "weight_only"),
    ("if_body", "onnxruntime"),
    ("transformer", "academic"),
    ("concat", "ryzenai"),
    ("residual", "qnn"),
    ("depthwise", "sophgo_bm1688"),
    ("detector", "nnie"),
)
"""Which models are quantized for which targets: the formats of their plans and parameters differ."""

Runner = Callable[[Sequence[str]], int]
"""Runs onnxq with arguments and returns its exit code."""


@dataclass(frozen=True)
class Run:
    """A model that has been quantized, with everything that was needed for it and came out of it."""

    name: str
    backend: str
    model: Path
    data: Path
    folder: Path
    statistics: Path


@dataclass(frozen=True)
class Source:
    """One file to mutate, taken as often as its weight says.

    `beside` is the folder that it lies in, where that folder is what a command takes.
    """

    name: str
    kind: Kind
    format: Format
    file_name: str
    content: bytes
    run: Run
    beside: Path | None = None
    weight: int = 1


@dataclass(frozen=True)
class Corpus:
    sources: Mapping[Kind, tuple[Source, ...]]
    targets: tuple[str, ...]
    variants: tuple[str, ...]

    def target(self, number: int) -> str:
        """In turn, so that none is left out; every other one as it is, without options."""
        names = self.variants if number % 2 else self.targets
        return names[number // 2 % len(names)]

    def named(self, kind: Kind, name: str) -> Source:
        return next(source for source in self.sources[kind] if source.name == name)


class CorpusFailed(Exception):
    """onnxq could not make a file that is to be mutated."""


def build_corpus(folder: Path, run_onnxq: Runner, kinds: Sequence[Kind] = tuple(Kind)) -> Corpus:
    """Write all files into `folder`. Kinds that are not asked for are left out where making them takes long."""
    runs = [_quantized(folder / f"{name}-{backend}", name, backend, run_onnxq) for name, backend in RUNS]
    first = runs[0]
    found: dict[Kind, list[Source]] = {kind: [] for kind in Kind}
    found[Kind.MODELS] = _models(first, runs)
    for run in runs:
        plan, qparams = run.folder / "plan.json", run.folder / "qparams.json"
        found[Kind.PLANS].append(_source(run, Kind.PLANS, JSON, plan))
        found[Kind.QPARAMS].append(_source(run, Kind.QPARAMS, JSON, qparams))
        if run.statistics.exists():  # weights alone need none
            found[Kind.STATISTICS].append(_source(run, Kind.STATISTICS, STATISTICS, run.statistics))
        found[Kind.SETTINGS].append(_source(run, Kind.SETTINGS, JSON, run.folder / "config.json"))
        found[Kind.DATA].append(_source(run, Kind.DATA, NPZ, run.data))
        for name in ("config.json", "report.json", "plan.json", "qparams.json"):
            found[Kind.FOLDERS].append(_source(run, Kind.FOLDERS, JSON, run.folder / name, beside=run.folder))
    found[Kind.DATA].append(_array(first, folder))
    found[Kind.IMAGES] = _images(next(run for run in runs if run.name.startswith("residual")), folder)
    found[Kind.SETTINGS] += _settings(first, folder)
    found[Kind.DIALECTS] = _dialects(first, folder)
    if Kind.CACHES in kinds:
        found[Kind.CACHES] = _caches(first, folder, run_onnxq)
    if Kind.CHECKPOINTS in kinds:
        found[Kind.CHECKPOINTS] = _checkpoints(first, folder, run_onnxq)
    targets = tuple(sorted(BACKENDS.names()))
    return Corpus({kind: tuple(sources) for kind, sources in found.items()}, targets, _variants(targets))


def _variants(names: Sequence[str]) -> tuple[str, ...]:
    """Backends with each of the other values of their options."""
    return tuple(
        f"{name}:{option.name}={value}"
        for name in names
        for option in BACKENDS.get(name).options
        for value in option.values
        if value != option.default
    )


def _quantized(folder: Path, name: str, backend: str, run_onnxq: Runner) -> Run:
    folder.mkdir(parents=True)
    model, data, statistics = folder / "float.onnx", folder / "calib.npz", folder / "statistics.npz"
    if name == DIGITS:
        shutil.copy(onnxq.demo.model_path(), model)
        with np.load(ROOT / "onnxq" / "demo" / "digits.npz") as held:
            samples = _digits(held)
    else:
        graph = GOLDEN[name]()
        model.write_bytes(graph.model.SerializeToString())
        samples = {key: np.concatenate([s[key] for s in graph.samples[:SAMPLES]]) for key in graph.samples[0]}
    np.savez(data, allow_pickle=False, **samples)
    out = folder / "out"
    arguments = ["quantize", model, "-b", backend, "--effort", "0", "-d", data, "--stats", statistics, "-o", out, "-q"]
    _must_work(run_onnxq, [str(argument) for argument in arguments])
    return Run(f"{name}-{backend}", backend, model, data, out, statistics)


def _digits(held: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    pictures = next(array for array in (held[key] for key in held) if array.ndim >= 3 or array.shape[-1] == 64)
    return {"image": np.asarray(pictures[:SAMPLES], np.float32).reshape(-1, 1, 8, 8)}


def _must_work(run_onnxq: Runner, arguments: Sequence[str]) -> None:
    code = run_onnxq(arguments)
    if code:
        raise CorpusFailed(f"onnxq {' '.join(arguments)} ended with {code}")


def _source(run: Run, kind: Kind, file_format: Format, path: Path, *, beside: Path | None = None) -> Source:
    return Source(f"{run.name}/{path.name}", kind, file_format, path.name, path.read_bytes(), run, beside)


def _models(first: Run, runs: Sequence[Run]) -> list[Source]:
    """Those of the zoo, and more often larger ones with the structures of real networks, float and quantized."""
    zoo = {f"zoo/{name}": build().model.SerializeToString() for name, build in sorted(ZOO.items())}
    sources = [Source(name, Kind.MODELS, MODEL, "model.onnx", content, first) for name, content in zoo.items()]
    for run in runs:
        for what, path in (("float", run.model), ("quantized", run.folder / "model.onnx")):
            name = f"{what}/{run.name}"
            sources.append(Source(name, Kind.MODELS, MODEL, "model.onnx", path.read_bytes(), run, weight=5))
    return sources


def _array(run: Run, folder: Path) -> Source:
    path = folder / "image.npy"
    with np.load(run.data) as held:
        np.save(path, held["image"])
    return _source(run, Kind.DATA, NPY, path)


def _images(run: Run, folder: Path) -> list[Source]:
    from PIL import Image

    pixels = np.arange(12 * 12 * 3, dtype=np.uint8).reshape(12, 12, 3)
    sources = []
    for suffix, file_format in (
        ("png", PNG),
        ("jpg", plain("jpg")),
        ("bmp", plain("bmp")),
        ("webp", plain("webp")),
    ):
        path = folder / f"picture.{suffix}"
        Image.fromarray(pixels).save(path)
        sources.append(_source(run, Kind.IMAGES, file_format, path))
    return sources


SETTINGS_TOML = ("examples/07-control-every-layer/settings.toml", "examples/04-compare-layer-by-layer/int4.toml")


def _settings(run: Run, folder: Path) -> list[Source]:
    sources = [_source(run, Kind.SETTINGS, TOML, ROOT / name) for name in SETTINGS_TOML]
    tree = TOML.parse((ROOT / SETTINGS_TOML[0]).read_bytes())
    for name, file_format in (("settings.yaml", YAML), ("settings.json", JSON)):
        path = folder / name
        path.write_text(json.dumps(tree))
        sources.append(_source(run, Kind.SETTINGS, file_format, path))
    return sources


VITIS_STRATEGY = {
    "strategy": "pof2s",
    "optimize_pipeline_config": {"fold_conv_bn": True, "include_cle": True},
    "quantize_pipeline_config": {"convert_average_pooling2d_to_dpu_version": True},
    "refine_pipeline_config": {"include_fast_ft": False, "include_bias_corr": False},
    "quantize_registry_config": {
        "user_defined_quantize_config": {},
        "input_quantize_config": {
            "input_layers": [],
            "input_quantizer": {
                "quantizer_type": "Pof2SQuantizer",
                "quantizer_params": {"bit_width": 8, "method": 0, "round_mode": 1, "symmetry": True, "unsigned": False},
            },
        },
        "layer_quantize_config": [],
    },
}


SAID_OF_DIGITS = {
    "layer1.conv1": "stem.conv",
    "layer2.conv2": "residual2.conv",
    "layer2.1.conv1": "residual1.conv",
    "layer3.conv3": "depthwise.conv",
    "features.0.0.weight_fake_quant": "stem.conv.weight_fake_quant",
    "encoder.0.attention.query": "residual1.conv",
    "encoder.1.linear2": "residual2.conv",
    "encoder.0.linear1.weight_fake_quant": "head.conv.weight_fake_quant",
    "pooler": "classifier",
    "[1, 3, 32, 32]": "[1, 1, 8, 8]",
}
"""What the configurations of the tests say about their models -> the same for the digits."""


def _dialects(run: Run, folder: Path) -> list[Source]:
    vitis = folder / "vitis_strategy.json"
    vitis.write_text(json.dumps(VITIS_STRATEGY))
    sources = [_source(run, Kind.DIALECTS, JSON, vitis)]
    for name in (
        "compat/mqbench/extra_config.json",
        "targets/sophgo/dialect/integers.json",
        "compat/mqbench/extra_config.yaml",
        "targets/sophgo/dialect/transformer.yaml",
    ):
        path = folder / Path(name).name
        text = (DIALECTS / name).read_text(encoding="utf-8")
        for there, here in SAID_OF_DIGITS.items():
            text = text.replace(there, here)
        path.write_text(text, encoding="utf-8")
        sources.append(_source(run, Kind.DIALECTS, YAML if path.suffix == ".yaml" else JSON, path))
    return sources


def _caches(run: Run, folder: Path, run_onnxq: Runner) -> list[Source]:
    cache = folder / "cache"
    arguments = ["sensitivity", run.model, "-b", run.backend, "-d", run.data, "--cache", cache, "-q"]
    _must_work(run_onnxq, [str(argument) for argument in arguments])
    formats = {".jsonl": JSON_LINES, ".npz": STATISTICS, ".json": JSON}
    return [
        _source(run, Kind.CACHES, formats.get(path.suffix, plain("cache")), path, beside=cache)
        for path in sorted(cache.iterdir())
        if path.is_file()
    ]


def _checkpoints(run: Run, folder: Path, run_onnxq: Runner) -> list[Source]:
    kept = folder / "checkpoints"
    arguments = ["qat", run.model, "-b", run.backend, "--train", run.data, "--steps", "1", "--batch-size", "2"]
    arguments += ["--checkpoint", kept, "-o", folder / "trained", "-q"]
    _must_work(run_onnxq, [str(argument) for argument in arguments])
    return [_source(run, Kind.CHECKPOINTS, ZIP, path, beside=kept) for path in sorted(kept.glob("*.pt"))]
