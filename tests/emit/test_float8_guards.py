"""Files with float8 quantizers load in onnxruntime as anybody would load them, and compute what they say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import onnxq
from onnxq.numerics import sqnr_db
from tests.zoo_graphs.net import Net

LEVELS = ort.GraphOptimizationLevel


def network() -> onnx.ModelProto:
    """What the optimizer looks for around quantizers: layers, Relu, Clip, PRelu, Softmax, Transpose, twin outputs."""
    net = Net("float8")
    x = net.conv_relu(net.input("x", [1, 3, 8, 8]), 3, 4)
    x = net.node("Clip", net.conv(x, 4, 4), net.floats(0.0), net.floats(6.0))
    x = net.node("PRelu", net.conv(x, 4, 4), net.floats(np.full((4, 1, 1), 0.2)))
    x = net.node("Add", net.conv(x, 4, 4), x)
    x = net.node("Transpose", net.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), perm=[0, 2, 3, 1])
    rows = net.node("Reshape", x, net.ints(1, 16, 4))
    attention = net.node("Softmax", net.linear(rows, 4, 4), axis=-1)
    net.output(net.node("MatMul", attention, net.weight(4, 4)), [1, 16, 4])
    net.output(net.node("Identity", attention), [1, 16, 4])
    return net.model()


def samples() -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [{"x": rng.normal(0, 1, (1, 3, 8, 8)).astype(np.float32)} for _ in range(4)]


def outputs(path: Path, level: ort.GraphOptimizationLevel) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 3
    return list(ort.InferenceSession(str(path), options).run(None, samples()[0]))


FLOAT8 = {"activation": {"dtype": "fp8_e4m3"}, "weight": {"dtype": "fp8_e4m3"}}


@pytest.mark.parametrize(
    ("backend", "config"),
    [
        ("sophgo_academic", {}),
        ("sophgo_bm1690:precision=F8E5M2", {}),
        ("onnxruntime", FLOAT8),
        ("weight_only:format=fp8_e4m3", {}),
    ],
)
def test_a_float8_file_computes_the_same_with_and_without_optimizations(
    backend: str, config: dict[str, object]
) -> None:
    result = onnxq.quantize(network(), backend=backend, data=samples(), config={"effort": 0, **config})
    assert not any("optimizer" in line for line in result.report["warnings"])
    written = outputs(result.model, LEVELS.ORT_DISABLE_ALL)
    for level in (LEVELS.ORT_ENABLE_BASIC, LEVELS.ORT_ENABLE_EXTENDED, LEVELS.ORT_ENABLE_ALL):
        for one, other in zip(written, outputs(result.model, level), strict=True):
            # Sums in another order can end on the other side of a rounding; float8 has 3 bits behind the point.
            assert sqnr_db(one, other) > 25


def test_tensorrt_gets_plain_float8_pairs_and_the_report_says_how_onnxruntime_loads_them() -> None:
    result = onnxq.quantize(network(), backend="tensorrt", data=samples(), config={"effort": 0, **FLOAT8})
    assert not [node for node in onnx.load(result.model).graph.node if node.op_type == "Max"]
    assert any("ORT_ENABLE_BASIC" in line for line in result.report["warnings"])
    assert len(outputs(result.model, LEVELS.ORT_ENABLE_BASIC)) == 2


def test_layers_between_guarded_quantizers_count_as_quantized_already() -> None:
    first = onnxq.quantize(network(), backend="sophgo_academic", data=samples(), config={"effort": 0})
    prepared = onnxq.prepare(onnx.load(first.model), "onnxruntime")
    plan = onnxq.place(prepared.graph, prepared.backend)
    layers = [node.name for node in prepared.graph.nodes("Conv")]
    assert layers
    assert all("quantized already" in plan.left_float[name] for name in layers)
