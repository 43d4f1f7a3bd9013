"""onnxruntime.quantization: its calibrators alone, and quantize_static from end to end.

What its documentation asks for first is set-up and not in the times: quant_pre_process, and opset 13, without which
weights cannot be quantized per channel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx
from onnx import version_converter
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    create_calibrator,
    quantize_static,
)
from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry
from onnxruntime.quantization.shape_inference import quant_pre_process

from tools.bench.peers.protocol import Action, Job, main
from tools.bench.samples import Feed

PER_CHANNEL_OPSET = 13
METHODS = {
    "MinMax": CalibrationMethod.MinMax,
    "Percentile": CalibrationMethod.Percentile,
    "Entropy": CalibrationMethod.Entropy,
}


class Reader(CalibrationDataReader):  # type: ignore[misc]
    """Feeds, one after the other, as onnxruntime.quantization wants them."""

    def __init__(self, feeds: Iterable[Feed]) -> None:
        self._feeds: Iterator[Feed] = iter(feeds)

    def get_next(self) -> Feed | None:
        return next(self._feeds, None)


def preprocessed(model: Path, folder: Path) -> Path:
    result = folder / "preprocessed.onnx"
    loaded = onnx.load(str(model))
    opset = next(entry.version for entry in loaded.opset_import if entry.domain in ("", "ai.onnx"))
    source = model
    if opset < PER_CHANNEL_OPSET:
        source = folder / "raised.onnx"
        onnx.save(version_converter.convert_version(loaded, PER_CHANNEL_OPSET), str(source))
    quant_pre_process(str(source), str(result), skip_symbolic_shape=True)
    return result


def quantize_file(
    model: Path, samples: Iterable[Feed], result: Path, method: str = "MinMax", *, reduce_range: bool = False
) -> Path:
    """Static QDQ with uint8 activations and int8 weights per channel, as for onnxq's backend of this runtime.

    `reduce_range` is its setting for x86 processors without VNNI: 7-bit weights, whose products do not saturate.
    """
    quantize_static(
        str(model),
        str(result),
        Reader(samples),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        reduce_range=reduce_range,
        calibrate_method=METHODS[method],
    )
    return result


def _calibrate(model: Path, samples: Iterable[Feed], folder: Path, method: str) -> None:
    # The operators that quantize_static would calibrate for.
    operators = sorted({*QLinearOpsRegistry, *QDQRegistry})
    augmented = str(folder / "augmented.onnx")
    calibrator = create_calibrator(model, operators, augmented_model_path=augmented, calibrate_method=METHODS[method])
    calibrator.collect_data(Reader(samples))
    calibrator.compute_data()


def _calibrator_job(method: str) -> Job:
    def job(model: Path, samples: Iterable[Feed], folder: Path) -> Action:
        ready = preprocessed(model, folder)
        return lambda: _calibrate(ready, samples, folder, method)

    return job


def _whole_job(method: str) -> Job:
    def job(model: Path, samples: Iterable[Feed], folder: Path) -> Action:
        ready = preprocessed(model, folder)
        return lambda: quantize_file(ready, samples, folder / "quantized.onnx", method)

    return job


JOBS: dict[str, Job] = {
    **{f"calibrator {method}": _calibrator_job(method) for method in METHODS},
    **{f"quantize_static {method}": _whole_job(method) for method in METHODS},
}

if __name__ == "__main__":
    main(JOBS, "onnxruntime")
