"""OpenVINO computes what the files mean, in integers: Q/DQ and FakeQuantize models against onnxruntime.

onnxruntime runs a file node by node, as it says, and so can OpenVINO: then only float rounding is between them. Its
integer kernels compute layers with the quantizers and additions behind them in one go, so that values inside may differ
by a step or two.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import onnxq
from tests.formats.tied_layers import BETWEEN, tied_layers
from tests.golden_graphs import GOLDEN
from tests.readers.environment import reader_python, record, run_check

pytestmark = pytest.mark.readers

SAMPLES = 4
MODELS = ("residual", "depthwise", "concat", "transformer", "detector")
FORMS = {"model.onnx": "Q/DQ", "model_deploy_model.onnx": "FakeQuantize"}
NODE_BY_NODE = "node by node: SQNR in dB"
INTEGERS = ("i8", "u8")
SAME_DB = 50.0
"""A scale, zero point or rounding that is understood differently is below this in every sample; half may not be."""
ONE_STEP_DB = 40.0
"""Sums of float32 in another order put a value on the other side of a half now and then: one step of one value, which
attention spreads over all words of that sample."""
IN_INTEGERS_DB = 30.0


def expected(model: Path, samples: list[dict[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
    """What a file means: every node on its own, so that no kernel of onnxruntime stands for several of them."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return [dict(zip(names, session.run(names, sample), strict=True)) for sample in samples]


def in_openvino(folder: Path, files: tuple[str, ...], samples: list[dict[str, np.ndarray]]) -> dict[str, Any]:
    """The answers of OpenVINO for files that all mean what model.onnx means: with its kernels, and node by node."""
    wanted = expected(folder / "model.onnx", samples)
    held = {f"input/{i}/{name}": value for i, sample in enumerate(samples) for name, value in sample.items()}
    for file in files:
        held |= {f"{file}/{i}/{name}": value for i, result in enumerate(wanted) for name, value in result.items()}
    np.savez(folder / "samples.npz", **held)
    arguments = [folder / "samples.npz", *(folder / file for file in files)]
    answer, apart = (run_check("openvino", *arguments, script=script) for script in ("check.py", "node_by_node.py"))
    for file in files:
        answer["models"][file]["node by node"] = apart["models"][file]["outputs"]
    return answer


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


def decibels(value: float) -> float | str:
    """A ratio for the table; check.py gives 300 where there is no noise at all."""
    return value if value < 300 else "equal"


def in_integers(layers: dict[str, dict[str, int]], *kinds: str) -> tuple[int, int]:
    """How many of these layers run on integers, and how many there are."""
    found = [(element_type, count) for kind in kinds for element_type, count in layers.get(kind, {}).items()]
    return sum(count for kind, count in found if kind in INTEGERS), sum(count for _, count in found)


@pytest.mark.parametrize("backend", ["openvino", "openvino:activations=asymmetric"])
def test_openvino_models_run_in_integers_and_agree_with_onnxruntime(name: str, backend: str, tmp_path: Path) -> None:
    folder, samples = quantized(name, backend, tmp_path)
    answer = in_openvino(folder, tuple(FORMS), samples)
    for file, form in FORMS.items():
        found = answer["models"][file]
        integers, layers = in_integers(found["layers"], "Convolution", "FullyConnected", "MatMul")
        figures: list[tuple[str, float | str]] = [
            (NODE_BY_NODE, decibels(worst(found["node by node"], "sqnr_db"))),
            ("node by node: largest difference", worst(found["node by node"], "difference")),
            ("integer kernels: largest difference", worst(found["outputs"], "difference")),
            ("integer kernels: SQNR in dB", decibels(worst(found["outputs"], "sqnr_db"))),
            ("layers with integer kernels", f"{integers} of {layers}"),
        ]
        for what, figure in figures:
            record("openvino", answer["version"], backend, f"{name}, {form}", what, figure)
        assert layers > 0
        assert integers == layers, (form, found["layers"])
        assert worst(found["node by node"], "typical_db") > SAME_DB, form
        assert worst(found["node by node"], "sqnr_db") > ONE_STEP_DB, form
        assert worst(found["outputs"], "sqnr_db") > IN_INTEGERS_DB, form


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("backend", ["openvino", "openvino:academic=yes"])
def test_what_shares_a_scale_and_is_computed_is_rounded_too(backend: str, between: str, tmp_path: Path) -> None:
    reader_python("openvino")
    model, samples = tied_layers(between)
    onnxq.quantize(model, backend=backend, data=samples, out=tmp_path / "out")
    file = "model_deploy_model.onnx"
    answer = in_openvino(tmp_path / "out", (file,), samples[:SAMPLES])
    found = worst(answer["models"][file]["node by node"], "sqnr_db")
    record(
        "openvino", answer["version"], backend, f"tied through {between}, FakeQuantize", NODE_BY_NODE, decibels(found)
    )
    assert found > SAME_DB


def test_tensorrt_models_mean_the_same_in_openvino(name: str, tmp_path: Path) -> None:
    folder, samples = quantized(name, "tensorrt", tmp_path)
    answer = in_openvino(folder, ("model.onnx",), samples)
    # Integer kernels are not compared: with 8-bit weights they saturate on processors without VNNI.
    found = worst(answer["models"]["model.onnx"]["node by node"], "sqnr_db")
    record("openvino", answer["version"], "tensorrt", name, NODE_BY_NODE, decibels(found))
    assert found > SAME_DB
