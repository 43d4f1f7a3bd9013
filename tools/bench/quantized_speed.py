"""Speed of quantized models in onnxruntime: onnxq's, onnxruntime.quantization's and the float model, interleaved."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

import onnxq
from onnxq.numerics import SqnrAccumulator
from tools.bench.models import MODELS, images

CALIBRATION_SAMPLES = 16


class _Reader(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, feeds: list[dict[str, np.ndarray]]) -> None:
        self._feeds: Iterator[dict[str, np.ndarray]] = iter(feeds)

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._feeds, None)


def measure(names: list[str], repeats: int) -> list[dict[str, Any]]:
    rows = []
    for name in names:
        with tempfile.TemporaryDirectory() as text:
            rows += _one(name, repeats, Path(text))
    return rows


def _one(name: str, repeats: int, folder: Path) -> list[dict[str, Any]]:
    feeds = images(CALIBRATION_SAMPLES + 4)
    calibration, test = feeds[:CALIBRATION_SAMPLES], feeds[CALIBRATION_SAMPLES:]
    float_path = folder / "float.onnx"
    onnx.save(MODELS[name](), str(float_path))
    paths = {
        "float": float_path,
        "onnxq": onnxq.quantize(float_path, backend="onnxruntime", data=calibration, out=folder / "onnxq").model,
        "onnxq portable": onnxq.quantize(
            float_path, backend="onnxruntime", data=calibration, out=folder / "portable", config={"portable": True}
        ).model,
        "onnxruntime.quantization": _by_onnxruntime(float_path, folder, calibration),
    }
    sessions = {tool: _session(path, folder / f"{tool}.optimized.onnx") for tool, path in paths.items()}
    sums = {tool: SqnrAccumulator() for tool in sessions}
    for feed in test:
        expected = sessions["float"].run(None, feed)[0]
        for tool, session in sessions.items():
            sums[tool].add(expected, session.run(None, feed)[0])
    times: dict[str, list[float]] = {tool: [] for tool in sessions}
    for _ in range(repeats):
        for tool, session in sessions.items():
            start = time.perf_counter()
            session.run(None, test[0])
            times[tool].append(time.perf_counter() - start)
    floor = float(np.median(times["float"]))
    return [
        {
            "model": name,
            "file": tool,
            "median ms": round(1000 * float(np.median(times[tool])), 1),
            "x float": round(float(np.median(times[tool])) / floor, 2),
            "SQNR dB": round(sums[tool].value, 1),
            **_kernels(folder / f"{tool}.optimized.onnx"),
        }
        for tool in sessions
    ]


def _by_onnxruntime(path: Path, folder: Path, calibration: list[dict[str, np.ndarray]]) -> Path:
    prepared, result = folder / "prepared.onnx", folder / "by_onnxruntime.onnx"
    quant_pre_process(str(path), str(prepared), skip_symbolic_shape=True)
    quantize_static(
        str(prepared),
        str(result),
        _Reader(calibration),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )
    return result


def _session(path: Path, optimized: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(optimized)
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _kernels(optimized: Path) -> dict[str, int]:
    counts = Counter(node.op_type for node in onnx.load(str(optimized)).graph.node)
    return {
        "integer Conv": counts["QLinearConv"],
        "float Conv": counts["Conv"] + counts["FusedConv"],
        "Q/DQ left": counts["QuantizeLinear"] + counts["DequantizeLinear"],
    }
