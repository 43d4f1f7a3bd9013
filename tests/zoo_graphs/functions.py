"""Models with local functions: the layers hide behind a call."""

from __future__ import annotations

from onnx import helper

from tests.zoo_graphs.case import Case, register
from tests.zoo_graphs.convolution import SIZE, photographs
from tests.zoo_graphs.net import OPSET, Net

DOMAIN = "zoo.blocks"
IMPORTS = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)]


def _conv_relu_function() -> object:
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["y"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["y"], ["z"], name="relu"),
    ]
    return helper.make_function(DOMAIN, "ConvRelu", ["x", "w", "b"], ["z"], nodes, IMPORTS)


def _net(name: str, functions: list[object]) -> Net:
    net = Net(name)
    net.domains = {"": OPSET, DOMAIN: 1}
    net.functions = functions  # type: ignore[assignment]
    return net


@register
def local_function_called_twice() -> Case:
    net = _net("local_function_called_twice", [_conv_relu_function()])
    y = net.node("ConvRelu", net.input("x", [1, 3, SIZE, SIZE]), net.weight(8, 3, 3, 3), net.bias(8), domain=DOMAIN)
    y = net.node("ConvRelu", y, net.weight(8, 8, 3, 3), net.bias(8), domain=DOMAIN)
    net.output(net.conv(y, 8, 4), [1, 4, SIZE, SIZE])
    return Case(net.model(), photographs(net), min_quantized=3)


@register
def nested_local_functions() -> Case:
    calls = [
        helper.make_node("ConvRelu", ["x", "w", "b"], ["y"], domain=DOMAIN),
        helper.make_node("ConvRelu", ["y", "w", "b"], ["z"], domain=DOMAIN),
        helper.make_node("Add", ["x", "z"], ["sum"]),
    ]
    block = helper.make_function(DOMAIN, "Residual", ["x", "w", "b"], ["sum"], calls, IMPORTS)
    net = _net("nested_local_functions", [_conv_relu_function(), block])
    y = net.conv_relu(net.input("x", [1, 3, SIZE, SIZE]), 3, 8)
    y = net.node("Residual", y, net.weight(8, 8, 3, 3, gain=1.0), net.bias(8), domain=DOMAIN)
    net.output(net.conv(y, 8, 4), [1, 4, SIZE, SIZE])
    return Case(net.model(), photographs(net), min_quantized=4, notes="a function that calls a function, weight shared")
