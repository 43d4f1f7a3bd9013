"""What training brings back of the accuracy that quantization has cost, for each fake-quantizer.

Every figure is the accuracy of an emitted file in onnxruntime, on images that neither training nor calibration has seen.
Training starts from the better of two calibrations and is compared with it. All fake-quantizers get the same steps,
batches and learning rates, which are the defaults of `onnxq qat`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import torch

import onnxq
from onnxq import qat
from onnxq.qat.batch_norm import BatchNorms
from onnxq.qat.loop import train
from onnxq.qat.settings import TrainSettings
from tools.bench.clock import failure_text
from tools.bench.image_sets import IMAGE_SETS, ImageSet, MissingSet
from tools.bench.results import Row, Tables

OBSERVERS = ("minmax", "mse")
CLEAR_LOSS = 1.0
"""Points of accuracy from which on it makes sense to say which share of them came back."""


@dataclass(frozen=True)
class Format:
    """Number formats by the name of a backend."""

    name: str
    backend: str
    batch_norms: BatchNorms = "folded"


@dataclass(frozen=True)
class Kind:
    """Fake-quantizers of weights and of activations."""

    name: str
    weight: str
    activation: str

    def config(self, observer: str) -> dict[str, Any]:
        return {
            "observer": observer,
            "weight_observer": observer,
            "weight": {"fake_quantizer": self.weight},
            "activation": {"fake_quantizer": self.activation},
            "minimum_sqnr_db": -100.0,  # a bad result is a row here, not an error
        }


def _academic(weight: int, activation: int) -> Format:
    backend = f"academic:w_bits={weight},a_bits={activation},a_symmetric=no"
    return Format(f"W{weight}A{activation}", backend, "frozen")


FIXED = Kind("fixed", "fixed", "fixed")
KINDS = (
    FIXED,
    Kind("lsq", "lsq", "lsq"),
    Kind("lsq_plus", "lsq", "lsq_plus"),
    Kind("dorefa weights, lsq activations", "dorefa", "lsq"),
    Kind("dsq", "dsq", "dsq"),
    Kind("lsq weights, pact activations", "lsq", "pact"),
    Kind("lsq weights, qdrop:0.5 activations", "lsq", "qdrop:0.5"),
)
TQT = Kind("tqt", "tqt", "tqt")
NARROW = (_academic(4, 4), _academic(3, 3), _academic(2, 4))
CASES: tuple[tuple[Format, Sequence[Kind]], ...] = (
    (_academic(8, 8), (FIXED, KINDS[1])),
    *((format, KINDS) for format in NARROW),
    (Format("W4A4, power-of-two scales", "academic:w_bits=4,a_bits=4,a_symmetric=yes,w_per_channel=no", "frozen"), (TQT,)),
    (Format("vitis (int8, power-of-two scales)", "vitis"), (TQT,)),
    (Format("nnie (logarithmic)", "nnie"), (Kind("nnie", "nnie", "nnie"),)),
    (Format("fp8 e4m3", "academic", "frozen"), (Kind("e4m3", "e4m3", "e4m3"),)),
)


@dataclass(frozen=True)
class Settings:
    """`steps` are those of one training; each is repeated with `seeds` orders of the batches, and the mean counts."""

    sets: Sequence[str] = ("digits", "mnist")
    steps: int = 400
    seeds: int = 2
    cache: Path = field(default_factory=Path)
    formats: Sequence[str] | None = None
    training: dict[str, Any] = field(default_factory=dict)


def measure(settings: Settings) -> Tables:
    tables: Tables = {}
    for name in settings.sets:
        try:
            images = IMAGE_SETS[name](settings.cache)
        except MissingSet as error:
            tables[name] = [{"format": "", "note": str(error)}]
            continue
        tables[name] = list(_rows(images, settings))
    return tables


def _rows(images: ImageSet, settings: Settings) -> Iterator[Row]:
    reference = _accuracy(_answers(images.model, images), images)
    yield {"format": "float", "QAT %": "", "PTQ %": round(reference, 2)}
    known: dict[str, dict[str, float]] = {}
    for format, kinds in CASES:
        if settings.formats is not None and format.name not in settings.formats:
            continue
        for kind in kinds:
            try:
                yield _row(images, format, kind, reference, settings)
            except Exception as error:  # whatever goes wrong is the result of its row
                yield {"format": format.name, "fake-quantizer": kind.name, "note": failure_text(error)}


def _row(images: ImageSet, format: Format, kind: Kind, reference: float, settings: Settings) -> Row:
    calibrated = {observer: _calibrated(images, format, kind, observer) for observer in OBSERVERS}
    start = max(calibrated, key=lambda observer: calibrated[observer])
    trained, changed = [], 0
    for seed in range(settings.seeds):
        accuracy, differing = _trained(images, format, kind, start, settings, seed)
        trained.append(accuracy)
        changed += differing
    lost, mean = reference - calibrated[start], float(np.mean(trained))
    return {
        "format": format.name,
        "fake-quantizer": kind.name,
        **{f"PTQ {observer} %": round(accuracy, 2) for observer, accuracy in calibrated.items()},
        "QAT %": round(mean, 2),
        "lowest .. highest": f"{min(trained):.2f} .. {max(trained):.2f}",
        "came back %": round(100 * (mean - calibrated[start]) / lost) if lost > CLEAR_LOSS else "",
        "note": f"{changed} answers of the files differ from the trained network" if changed else "",
    }


def _calibrated(images: ImageSet, format: Format, kind: Kind, observer: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        result = onnxq.quantize(
            images.model,
            backend=format.backend,
            data=images.calibration,
            out=Path(folder) / "out",
            config=kind.config(observer),
        )
        return _accuracy(_answers(result.model, images), images)


def _trained(
    images: ImageSet, format: Format, kind: Kind, observer: str, settings: Settings, seed: int
) -> tuple[float, int]:
    """Accuracy of the file after training, and how many of its answers are not those of the trained network."""
    net = qat.prepare(
        images.model, format.backend, images.calibration, kind.config(observer), batch_norms=format.batch_norms
    )
    rows = (images.train_images, images.train_labels)
    train(net, rows, TrainSettings(epochs=1000, steps=settings.steps, batch_size=64, seed=seed, **settings.training))
    with tempfile.TemporaryDirectory() as folder:
        found = _answers(qat.deliver(net, Path(folder) / "out").model, images)
    net.eval()
    with torch.no_grad():
        own = np.concatenate([net(part).argmax(1).numpy() for part in torch.from_numpy(images.test_images).split(500)])
    return _accuracy(found, images), int((found != own).sum())


def _answers(model: Path, images: ImageSet) -> np.ndarray:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    parts = np.array_split(images.test_images, max(1, len(images.test_images) // 500))
    return np.concatenate([session.run(None, {"image": part})[0].argmax(axis=1) for part in parts])


def _accuracy(answers: np.ndarray, images: ImageSet) -> float:
    return 100 * float((answers == images.test_labels).mean())
