"""What training brings back of the accuracy that quantization has cost, for each fake-quantizer.

Every figure is the accuracy of an emitted file in onnxruntime, on images that neither training nor calibration has
seen. Training starts from the better of two calibrations and is compared with it. All fake-quantizers get the same
steps, batches and learning rates, which are the defaults of `onnxq qat`.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import onnxq
from onnxq import qat
from onnxq.config.training import TrainSettings
from onnxq.qat.batch_norm import BatchNorms
from onnxq.qat.loop import train
from onnxq.runtime.session import make_session
from tools.bench.clock import failure_text
from tools.bench.image_sets import IMAGE_SETS, ImageSet, MissingSet
from tools.bench.results import Row, Tables

OBSERVERS = ("minmax", "mse")
EPOCHS = 1000
"""More than any number of steps needs: the steps are the limit."""
ROWS_AT_ONCE = 500
STATED = ("steps", "batch_size", "optimizer", "lr", "scale_rate", "schedule", "observer_freeze", "weight_decay")
"""The settings of training that the page names."""
COLUMNS = ("format", "fake-quantizer", *(f"PTQ {observer} %" for observer in OBSERVERS), "QAT %")
"""The first columns of a table, in their order."""
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
    Kind("adaround weights, lsq activations", "adaround", "lsq"),
)
TQT = Kind("tqt", "tqt", "tqt")
POWERS = "academic:w_bits=4,a_bits=4,w_per_channel=no"
CASES: tuple[tuple[Format, Sequence[Kind]], ...] = (
    (_academic(8, 8), KINDS[:2]),
    (_academic(4, 4), KINDS[:2]),
    (_academic(3, 3), KINDS),
    (_academic(2, 4), KINDS),
    (Format("W4A4, power-of-two scales", POWERS, "frozen"), (TQT,)),
    (Format("vitis: int8, power-of-two scales", "vitis"), (TQT,)),
    (Format("nnie: 8 bits, logarithmic", "nnie"), (Kind("nnie", "nnie", "nnie"),)),
    (Format("sophgo_bm1690: fp8 e4m3", "sophgo_bm1690:precision=F8E4M3"), (Kind("e4m3", "e4m3", "e4m3"),)),
)


@dataclass(frozen=True)
class Settings:
    """`steps` are those of one training; each is repeated with `seeds` orders of the batches, and the mean counts."""

    cache: Path
    sets: Sequence[str] = ("digits", "mnist")
    steps: int = 300
    seeds: int = 2
    formats: Sequence[str] | None = None
    batch: int = 64


@dataclass(frozen=True)
class Reference:
    """Accuracy of the float network: as it was given, and after the same training without any rounding."""

    given: float
    trained_on: float


@dataclass(frozen=True)
class Trained:
    """One training: the accuracy of its file, how far scales have moved, and what a reader has to know."""

    accuracy: float
    scales_moved: float
    note: str


def measure(settings: Settings) -> Tables:
    """One thread: these networks are too small for more, and sums have one order on every machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _tables(settings)
    finally:
        torch.set_num_threads(before)


def _tables(settings: Settings) -> Tables:
    tables: Tables = {f"training on {', '.join(settings.sets)}": _training_rows(settings)}
    for name in settings.sets:
        try:
            images = IMAGE_SETS[name](settings.cache)
        except MissingSet as error:
            tables[name] = [{"format": "", "note": str(error)}]
            continue
        tables[name] = []
        for row in _rows(images, settings):
            print(name, *(f"{key}: {value}" for key, value in row.items() if value != ""), sep="; ", file=sys.stderr)
            tables[name].append(row)
    return tables


def _rows(images: ImageSet, settings: Settings) -> Iterator[Row]:
    reference = Reference(_accuracy(_answers(images.model, images), images), _trained_in_float(images, settings))
    for accuracy, note in (
        (reference.given, "as it was given"),
        (reference.trained_on, "the same training without rounding"),
    ):
        yield {**dict.fromkeys(COLUMNS, ""), "format": "float", "QAT %": round(accuracy, 2), "note": note}
    for format, kinds in CASES:
        if settings.formats is not None and format.name not in settings.formats:
            continue
        for kind in kinds:
            try:
                yield _row(images, format, kind, reference, settings)
            except Exception as error:  # whatever goes wrong is the result of its row
                yield {"format": format.name, "fake-quantizer": kind.name, "note": failure_text(error)}


def _row(images: ImageSet, format: Format, kind: Kind, reference: Reference, settings: Settings) -> Row:
    calibrated = {observer: _calibrated(images, format, kind, observer) for observer in OBSERVERS}
    start = max(calibrated, key=lambda observer: calibrated[observer])
    trained = [_trained(images, format, kind, start, settings, seed) for seed in range(settings.seeds)]
    found = [one.accuracy for one in trained]
    mean = float(np.mean(found))
    return {
        "format": format.name,
        "fake-quantizer": kind.name,
        **{f"PTQ {observer} %": round(accuracy, 2) for observer, accuracy in calibrated.items()},
        "QAT %": round(mean, 2),
        "lowest .. highest": f"{min(found):.2f} .. {max(found):.2f}" if len(found) > 1 else "",
        "came back %": _came_back(calibrated[start], mean, reference.given),
        "came back %, strict": _came_back(calibrated[start], mean, reference.trained_on),
        "scales moved %": round(float(np.mean([one.scales_moved for one in trained])), 1),
        "note": "; ".join(dict.fromkeys(one.note for one in trained if one.note)),
    }


def _came_back(start: float, trained: float, reference: float) -> int | str:
    lost = reference - start
    return round(100 * (trained - start) / lost) if lost > CLEAR_LOSS else ""


def _calibrated(images: ImageSet, format: Format, kind: Kind, observer: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        result = onnxq.quantize(
            images.model,
            backend=format.backend,
            data=images.calibration,
            out=Path(folder) / "out",
            config={**kind.config(observer), "effort": 0},  # what training starts from
        )
        return _accuracy(_answers(result.model, images), images)


def _trained(images: ImageSet, format: Format, kind: Kind, observer: str, settings: Settings, seed: int) -> Trained:
    net = qat.prepare(
        images.model, format.backend, images.calibration, kind.config(observer), batch_norms=format.batch_norms
    )
    _train(net, images, settings, seed)
    with tempfile.TemporaryDirectory() as folder:
        answers = _answers(qat.deliver(net, Path(folder) / "out").model, images)
    differing = int((answers != _own_answers(net, images)).sum())
    notes = [f"{differing} answers of the file differ from the trained network"] if differing else []
    if _zero_points_stayed(net):
        notes.append("no zero point has moved by a whole step, so this was trained as lsq")
    return Trained(_accuracy(answers, images), _scales_moved(net), "; ".join(notes))


def _scales_moved(net: qat.QatNet) -> float:
    """The median change of a scale against calibration, in percent: how much of the result is due to it."""
    changes = [
        np.abs(module.to_qparams().scale / net.calibrated.state.qparams[name].scale - 1).ravel()
        for name, module in net.fake_quantizers.items()
        if net.plan[name].derive is None
    ]
    return 100 * float(np.median(np.concatenate(changes)))


def _zero_points_stayed(net: qat.QatNet) -> bool:
    """Whether there are zero points to learn and all are what calibration found."""
    learnt = [
        (module.to_qparams().zero_point, net.calibrated.state.qparams[name].zero_point)
        for name, module in net.fake_quantizers.items()
        if "zero point" in module.settings.kind.learns
    ]
    return bool(learnt) and all(np.array_equal(now, before) for now, before in learnt)


def _trained_in_float(images: ImageSet, settings: Settings) -> float:
    """The mean over the seeds: how much of a gain is that of training on, and not of quantization."""
    found = []
    for seed in range(settings.seeds):
        net = qat.prepare(images.model, "academic", images.calibration, batch_norms="frozen")
        _train(net, images, settings, seed, quantize_from=None)
        net.quantize(False)
        found.append(_accuracy(_own_answers(net, images), images))
    return float(np.mean(found))


def _train(net: qat.QatNet, images: ImageSet, settings: Settings, seed: int, **more: Any) -> None:
    train(net, (images.train_images, images.train_labels), _training(settings, seed=seed, **more))


def _training(settings: Settings, **more: Any) -> TrainSettings:
    return TrainSettings(epochs=EPOCHS, steps=settings.steps, batch_size=settings.batch, **more)


def _training_rows(settings: Settings) -> list[Row]:
    """What all trainings had in common, from the settings themselves: defaults may change, and results with them."""
    chosen = _training(settings)
    facts = {name: getattr(chosen, name) for name in STATED}
    return [{"setting": name, "value": value} for name, value in {**facts, "seeds": settings.seeds}.items()]


def _own_answers(net: qat.QatNet, images: ImageSet) -> np.ndarray:
    net.eval()
    with torch.no_grad():
        parts = torch.from_numpy(images.test_images).split(ROWS_AT_ONCE)
        return np.concatenate([net(part).argmax(1).numpy() for part in parts])


def _answers(model: Path, images: ImageSet) -> np.ndarray:
    """Without onnxruntime's own optimizations, which saturate on some processors and do not know 4-bit formats."""
    session = make_session(model, optimize="none")
    parts = np.array_split(images.test_images, max(1, len(images.test_images) // ROWS_AT_ONCE))
    return np.concatenate([session.run(None, {"image": part})[0].argmax(axis=1) for part in parts])


def _accuracy(answers: np.ndarray, images: ImageSet) -> float:
    return 100 * float((answers == images.test_labels).mean())
