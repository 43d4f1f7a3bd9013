"""A weight that the chip's smallest scale leaves hardly any number for is worth a warning that names the way out."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

import onnxq
from tests.zoo_graphs.net import Net


def with_weights_of(size: float) -> onnx.ModelProto:
    net = Net("small_weights")
    x = net.conv_relu(net.input("x", [1, 3, 8, 8]), 3, 4)
    net.node("Conv", x, net.weight(4, 4, 1, 1, name="tiny"), output="a", name="small")
    net.output(net.node("Mul", "a", net.floats(np.full((1, 4, 1, 1), 1 / size)), output="y"))
    model = net.model()
    (tiny,) = [t for t in model.graph.initializer if t.name == "tiny"]
    tiny.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tiny) * np.float32(size), "tiny"))
    return model


def warnings_of(size: float, tmp_path) -> list[str]:
    rng = np.random.default_rng(1)
    data = [{"x": rng.normal(size=(1, 3, 8, 8)).astype(np.float32)} for _ in range(4)]
    config = {"minimum_sqnr_db": -100.0, "skip_passes": ["fuse_conv_scale"]}
    report = onnxq.quantize(with_weights_of(size), backend="vitis", data=data, out=tmp_path, config=config).report
    return [line for line in report["warnings"] if line.startswith("weight 'tiny'")]


def test_a_weight_below_the_smallest_scale_is_named_with_its_node(tmp_path) -> None:
    (warning,) = warnings_of(1e-3, tmp_path)
    assert "--skip small" in warning


def test_ordinary_weights_are_not(tmp_path) -> None:
    assert warnings_of(1.0, tmp_path) == []
