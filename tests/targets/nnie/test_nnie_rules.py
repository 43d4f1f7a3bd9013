"""What the NNIE mapper would not take of a network, on float models from anywhere."""

import numpy as np
import pytest

from onnxq.graph import Graph
from onnxq.targets import get_backend
from onnxq.verify import lint
from tests.zoo_graphs.net import Net


def findings(op, shape, *extra, **attributes):
    net = Net("rule")
    net.input("x", shape)
    net.output(net.node(op, "x", *(net.floats(e) if e != "" else "" for e in extra), name="here", **attributes))
    return lint(Graph.from_model(net.model()), get_backend("nnie"))


@pytest.mark.parametrize(
    ("size", "attributes", "wrong"),
    [
        (16, {"kernel_shape": [2, 2], "strides": [2, 2]}, False),
        (15, {"kernel_shape": [2, 2], "strides": [2, 2]}, True),
        (15, {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}, False),
        (112, {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}, True),
        (113, {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}, False),
        (9, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, False),
        # Rounded up, the last window would begin behind the picture: both make 2.
        (4, {"kernel_shape": [1, 1], "strides": [3, 3]}, False),
        ("height", {"kernel_shape": [2, 2], "strides": [2, 2]}, False),
    ],
)
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_pooling_must_make_the_sizes_that_the_chip_makes(op, size, attributes, wrong):
    found = findings(op, [1, 2, size, size], **attributes)
    assert [finding.rule for finding in found] == ["nnie-pooling"] * wrong
    if wrong:
        assert "'here'" in found[0].message
        assert "ceil_mode" in found[0].remedy


@pytest.mark.parametrize(
    ("scales", "mode", "wrong"),
    [
        ([1.0, 1.0, 2.0, 2.0], "nearest", False),
        ([1.0, 1.0, 3.0, 3.0], "nearest", True),
        ([1.0, 1.0, 2.0, 2.0], "linear", True),
    ],
)
def test_only_enlarging_twice_by_repeating_pixels_is_there(scales, mode, wrong):
    found = findings("Resize", [1, 2, 4, 4], "", scales, mode=mode)
    assert [finding.rule for finding in found] == ["nnie-resize"] * wrong
    assert all("factor of 2" in finding.message for finding in found)


def test_quantizers_with_even_steps_are_refused():
    net = Net("qdq")
    net.input("x", [1, 4])
    scale, zero = net.floats(0.1), net.constant(np.int8(0))
    quantized = net.node("QuantizeLinear", "x", scale, zero)
    net.output(net.node("DequantizeLinear", quantized, scale, zero))
    found = lint(Graph.from_model(net.model()), get_backend("nnie"))
    assert {finding.rule for finding in found} == {"dtype"}
