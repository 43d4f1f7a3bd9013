"""Layers that a file leaves float stay float in onnxruntime, whose optimizer would give them 8-bit weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

import onnxq
from onnxq.numerics import sqnr_db
from tests.zoo_graphs.net import Net

LEVELS = ort.GraphOptimizationLevel


def network() -> onnx.ModelProto:
    """Three convolutions; channels of the second one differ by 1,000, which one scale for all of them cannot hold."""
    net = Net("layers")
    x = net.conv(net.input("x", [1, 3, 8, 8]), 3, 8)
    sizes = np.geomspace(1, 1000, 8).reshape(-1, 1, 1, 1)
    weight = np.random.default_rng(0).normal(size=(8, 8, 1, 1)) / sizes
    x = net.node("Conv", x, net.floats(weight), net.floats(np.full(8, 0.1)), kernel_shape=[1, 1])
    net.output(net.conv(x, 8, 4), [1, 4, 8, 8])
    return net.model()


def outputs(path: Path, level: ort.GraphOptimizationLevel, feed: dict[str, np.ndarray]) -> np.ndarray:
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feed)[0])


def test_a_layer_that_is_left_float_has_float_weights_in_onnxruntime(tmp_path: Path) -> None:
    model = network()
    float_layer = model.graph.node[1].name
    rng = np.random.default_rng(1)
    feeds = [{"x": rng.normal(size=(1, 3, 8, 8)).astype(np.float32)} for _ in range(4)]
    config = {"effort": 0, "skip": [float_layer]}
    result = onnxq.quantize(model, backend="onnxruntime", data=feeds, out=tmp_path / "out", config=config)
    path = next(path for path in result.files if path.name == "model.onnx")
    written = onnx.load(path)
    assert "Max" in {node.op_type for node in written.graph.node}
    plain, optimized = (outputs(path, level, feeds[0]) for level in (LEVELS.ORT_DISABLE_ALL, LEVELS.ORT_ENABLE_BASIC))
    assert sqnr_db(plain, optimized) > 50  # sums in another order; 8-bit weights with one scale come to 25 dB
