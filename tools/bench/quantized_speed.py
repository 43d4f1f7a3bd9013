"""Speed of quantized models in onnxruntime: onnxq's, onnxruntime.quantization's and the float model, interleaved."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

import onnxq
from onnxq.numerics import SqnrAccumulator
from tools.bench.models import MODELS
from tools.bench.peers.onnxruntime import preprocessed, quantize_file
from tools.bench.results import Row
from tools.bench.samples import samples_for

CALIBRATION_SAMPLES = 16


def measure(names: list[str], repeats: int) -> list[Row]:
    rows = []
    for name in names:
        with tempfile.TemporaryDirectory() as text:
            rows += _one(name, repeats, Path(text))
    return rows


def _one(name: str, repeats: int, folder: Path) -> list[Row]:
    feeds = list(samples_for(name, CALIBRATION_SAMPLES + 4))
    calibration, test = feeds[:CALIBRATION_SAMPLES], feeds[CALIBRATION_SAMPLES:]
    float_path = folder / "float.onnx"
    onnx.save(MODELS[name](), str(float_path))
    ready = preprocessed(float_path, folder)
    paths = {
        "float": float_path,
        "onnxq": onnxq.quantize(float_path, backend="onnxruntime", data=calibration, out=folder / "onnxq").model,
        "onnxq portable": onnxq.quantize(
            float_path, backend="onnxruntime", data=calibration, out=folder / "portable", config={"portable": True}
        ).model,
        "onnxruntime.quantization": quantize_file(ready, calibration, folder / "full_range.onnx"),
        "onnxruntime.quantization, reduce_range": quantize_file(
            ready, calibration, folder / "reduced_range.onnx", reduce_range=True
        ),
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
