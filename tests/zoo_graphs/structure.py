"""Unusual shapes of the graph itself: outputs read inside, outputs that are inputs, several outputs, unused parts."""

from __future__ import annotations

import numpy as np

from tests.zoo_graphs.case import Case, register
from tests.zoo_graphs.convolution import SIZE, photographs
from tests.zoo_graphs.net import Net


@register
def outputs_read_inside() -> Case:
    net = Net("outputs_read_inside")
    x = net.input("x", [1, 3, SIZE, SIZE])
    before = net.conv(x, 3, 8)
    after = net.relu(before)
    last = net.conv(after, 8, 4)
    for output in (before, after, last):
        net.output(output)
    return Case(
        net.model(), photographs(net), min_quantized=2, notes="Conv and its Relu are both outputs and both read"
    )


@register
def batch_norm_output_is_graph_output() -> Case:
    net = Net("batch_norm_output_is_graph_output")
    x = net.input("x", [1, 3, SIZE, SIZE])
    raw = net.conv(x, 3, 8)
    net.output(raw)
    net.output(net.batch_norm(raw, 8))
    return Case(net.model(), photographs(net), notes="the Conv output is an output too: folding would change it")


@register
def output_straight_from_input() -> Case:
    net = Net("output_straight_from_input")
    x = net.input("x", [1, 3, SIZE, SIZE])
    net.output(net.node("Identity", x, output="copy"))
    net.output(net.conv(net.conv_relu(x, 3, 8), 8, 4))
    return Case(net.model(), photographs(net), min_quantized=2, exact_outputs=("copy",))


@register
def same_values_as_two_outputs() -> Case:
    net = Net("same_values_as_two_outputs")
    x = net.input("x", [1, 3, SIZE, SIZE])
    y = net.conv(net.conv_relu(x, 3, 8), 8, 4)
    net.output(y)
    net.output(net.node("Identity", y, output="again"))
    net.output(net.node("Identity", net.node("Identity", y), output="and_again"))
    return Case(net.model(), photographs(net), min_quantized=2, notes="three outputs of one tensor, through Identity")


@register
def input_is_also_an_output() -> Case:
    net = Net("input_is_also_an_output")
    x = net.input("x", [1, 3, SIZE, SIZE])
    net.output(x, [1, 3, SIZE, SIZE])
    net.output(net.conv(x, 3, 4))
    return Case(net.model(), photographs(net), exact_outputs=("x",), notes="an output with the name of an input")


@register
def constant_is_an_output() -> Case:
    net = Net("constant_is_an_output")
    x = net.input("x", [1, 3, SIZE, SIZE])
    net.output(net.conv(x, 3, 4))
    net.output(net.node("Constant", output="anchors", value_floats=[1.0, 2.0, 4.0]))
    return Case(net.model(), photographs(net), exact_outputs=("anchors",), notes="folding must not lose the output")


@register
def unused_input_and_dead_nodes() -> Case:
    net = Net("unused_input_and_dead_nodes")
    x, unused = net.input("x", [1, 3, SIZE, SIZE]), net.input("unused", [2, 2])
    net.conv(x, 3, 8)
    net.weight(5, 5, name="nobody_reads_me")
    net.output(net.conv(net.conv_relu(x, 3, 8), 8, 4))
    feeds = [feed | {unused: np.zeros((2, 2), np.float32)} for feed in photographs(net)]
    return Case(net.model(), feeds, min_quantized=2, notes="inputs nobody reads belong to the interface and stay")


@register
def two_inputs_siamese() -> Case:
    net = Net("two_inputs_siamese")
    left, right = net.input("x", [1, 3, SIZE, SIZE]), net.input("y", [1, 3, SIZE, SIZE])
    weight, bias = net.weight(8, 3, 3, 3), net.bias(8)
    towers = [net.relu(net.node("Conv", side, weight, bias, pads=[1] * 4)) for side in (left, right)]
    net.output(net.conv(net.node("Concat", *towers, axis=1), 16, 4))
    net.output(net.node("Mul", *towers))
    feeds = [{"x": net.image(1, 3, SIZE, SIZE), "y": net.image(1, 3, SIZE, SIZE) * np.float32(4)} for _ in range(4)]
    return Case(net.model(), feeds, min_quantized=3, notes="weight and bias shared by two inputs of different range")


@register
def long_elementwise_chain() -> Case:
    net = Net("long_elementwise_chain")
    x = net.input("x", [1, 3, SIZE, SIZE])
    y = net.conv_relu(x, 3, 4)
    for _ in range(60):
        y = net.node("Add", y, net.floats(0.001))
    net.output(net.conv(y, 4, 4))
    return Case(net.model(), photographs(net), minimum_db=20.0, min_quantized=2, notes="60 element-wise operators")


@register
def nothing_to_quantize() -> Case:
    net = Net("nothing_to_quantize")
    x = net.input("x", [1, 3, SIZE, SIZE])
    net.output(net.node("Exp", net.node("Neg", net.node("Abs", x))))
    return Case(net.model(), photographs(net), expect="either", min_quantized=0, error_mentions=("quantiz",))


@register
def unknown_custom_operator() -> Case:
    net = Net("unknown_custom_operator")
    net.domains = {"": 17, "acme.ops": 1}
    y = net.conv_relu(net.input("x", [1, 3, SIZE, SIZE]), 3, 8)
    y = net.node("FancyActivation", y, domain="acme.ops", strength=2.0)
    net.output(net.conv(y, 8, 4), [1, 4, SIZE, SIZE])
    return Case(
        net.model(),
        photographs(net),
        expect="refused",
        error_mentions=("FancyActivation", "acme.ops"),
        runs_in_onnxruntime=False,
        notes="onnxruntime cannot run it, so there is nothing to calibrate with",
    )


@register
def residual_from_its_own_convolution_opset_21() -> Case:
    net = Net("residual_from_its_own_convolution_opset_21", opset=21)
    a = net.conv(net.input("x", [1, 3, SIZE, SIZE]), 3, 8)
    y = net.node("Add", a, net.relu(a))
    net.output(net.conv(y, 8, 4))
    return Case(net.model(), photographs(net), min_quantized=2, notes="both inputs of the Add are quantized")
