"""OpenVINO computes what the files mean, in integers: Q/DQ and FakeQuantize models against onnxruntime.

onnxruntime runs a file node by node, as it says. OpenVINO fuses quantizers into integer layers, so the same numbers
can come out on the other side of a half: a difference of one step inside the network, seen at the output.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import onnxq
from tests.golden_graphs import GOLDEN
from tests.readers.environment import reader_python, record, run_check

pytestmark = pytest.mark.readers

SAMPLES = 4
MODELS = ("residual", "depthwise", "concat", "transformer", "detector")
INTEGERS = ("i8", "u8")
SAME = 1e-5
"""Differences of float32 sums in another order, relative to the largest output; one step of 8 bits is 1e-3 or more."""


def expected(model: Path, samples: list[dict[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
    """What a file means: every node on its own, so that no kernel of onnxruntime stands for several of them."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return [dict(zip(names, session.run(names, sample), strict=True)) for sample in samples]


def in_openvino(folder: Path, files: tuple[str, ...], samples: list[dict[str, np.ndarray]]) -> dict[str, Any]:
    """The answer of OpenVINO for files that all mean what model.onnx means."""
    wanted = expected(folder / "model.onnx", samples)
    held = {f"input/{i}/{name}": value for i, sample in enumerate(samples) for name, value in sample.items()}
    for file in files:
        held |= {f"{file}/{i}/{name}": value for i, result in enumerate(wanted) for name, value in result.items()}
    np.savez(folder / "samples.npz", **held)
    return run_check("openvino", folder / "samples.npz", *(folder / file for file in files))


@pytest.fixture(params=MODELS)
def name(request: pytest.FixtureRequest) -> str:
    reader_python("openvino")  # skips before anything is quantized
    return str(request.param)


def quantized(name: str, backend: str, folder: Path) -> tuple[Path, list[dict[str, np.ndarray]]]:
    golden = GOLDEN[name]()
    onnxq.quantize(golden.model, backend=backend, data=golden.samples, out=folder / "out")
    return folder / "out", golden.samples[:SAMPLES]


def worst(answer: dict[str, dict[str, float]], figure: str) -> float:
    values = [output[figure] for output in answer.values()]
    return max(values) if figure == "difference" else min(values)


def in_integers(layers: dict[str, dict[str, int]], *kinds: str) -> tuple[int, int]:
    """How many of these layers run on integers, and how many there are."""
    found = [(element_type, count) for kind in kinds for element_type, count in layers.get(kind, {}).items()]
    return sum(count for kind, count in found if kind in INTEGERS), sum(count for _, count in found)


@pytest.mark.parametrize("file", ["model.onnx", "model_deploy_model.onnx"])
def test_openvino_models_run_in_integers_and_agree_with_onnxruntime(name: str, file: str, tmp_path: Path) -> None:
    folder, samples = quantized(name, "openvino", tmp_path)
    answer = in_openvino(folder, (file,), samples)
    version, found = answer["version"], answer["models"][file]
    integers, layers = in_integers(found["layers"], "Convolution", "FullyConnected", "MatMul")
    form = "Q/DQ" if file == "model.onnx" else "FakeQuantize"
    for what, figure in (
        ("every quantizer on its own: largest difference", worst(found["meaning"], "difference")),
        ("integer kernels: largest difference", worst(found["outputs"], "difference")),
        ("integer kernels: SQNR in dB", worst(found["outputs"], "sqnr_db")),
        ("layers with integer kernels", f"{integers} of {layers}"),
    ):
        record("openvino", version, "openvino", f"{name}, {form}", what, figure)
    assert layers > 0
    assert integers == layers, found["layers"]
    assert worst(found["meaning"], "difference") < SAME
    assert worst(found["outputs"], "sqnr_db") > 30


def test_tensorrt_models_mean_the_same_in_openvino(name: str, tmp_path: Path) -> None:
    folder, samples = quantized(name, "tensorrt", tmp_path)
    answer = in_openvino(folder, ("model.onnx",), samples)
    found = answer["models"]["model.onnx"]
    # The integer kernels are not compared: with 8-bit weights they saturate on processors without VNNI.
    what = "every quantizer on its own: largest difference"
    record("openvino", answer["version"], "tensorrt", name, what, worst(found["meaning"], "difference"))
    assert worst(found["meaning"], "difference") < SAME
