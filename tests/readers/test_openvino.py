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
