"""A graph in which a computed tensor has the scale of what it is computed from, because a Concat joins both."""

from __future__ import annotations

import onnx

from tests.golden_graphs import Samples
from tests.zoo_graphs.net import Net

BETWEEN = ("Conv", "AveragePool", "linear")
"""What stands between both tensors: an operator, or the mode of a Resize. None of them only moves values."""


def tied_layers(between: str = "Conv") -> tuple[onnx.ModelProto, Samples]:
    """x and y = between(x) go into a Concat, and y into a layer too."""
    net = Net(f"tied_{between}")
    x = net.input("x", [1, 4, 8, 8])
    if between == "Conv":
        y = net.conv(x, 4, 4, output="y")
    elif between == "AveragePool":
        y = net.node(between, x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], output="y")
    else:
        scales = net.floats([1.0, 1.0, 1.0, 1.0])
        y = net.node("Resize", x, "", scales, mode=between, output="y")
    joined = net.node("Concat", x, y, axis=1)
    net.output(net.conv(y, 4, 2))
    net.output(net.conv(joined, 8, 2))
    return net.model(), [{"x": net.image(1, 4, 8, 8)} for _ in range(8)]
