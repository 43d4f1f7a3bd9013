"""Non-linearities between convolutions, the ones that targets fuse and the ones that they do not."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.zoo_graphs.case import Case, register
from tests.zoo_graphs.convolution import SIZE, photographs
from tests.zoo_graphs.net import OPSET, Net


def activation(name: str, op: str, opset: int = OPSET, **attributes: Any) -> Case:
    net = Net(name, opset=opset)
    y = net.node(op, net.conv(net.input("x", [1, 3, SIZE, SIZE]), 3, 8), **attributes)
    net.output(net.conv(y, 8, 4))
    return Case(net.model(), photographs(net), min_quantized=2)


for _name, _op, _attributes in (
    ("activation_sigmoid", "Sigmoid", {}),
    ("activation_tanh", "Tanh", {}),
    ("activation_leaky_relu", "LeakyRelu", {"alpha": 0.1}),
    ("activation_hard_swish", "HardSwish", {}),
    ("activation_hard_sigmoid", "HardSigmoid", {"alpha": 1 / 6}),
    ("activation_elu", "Elu", {}),
    ("activation_softplus", "Softplus", {}),
    ("activation_softmax_over_channels", "Softmax", {"axis": 1}),
):
    register(partial(activation, _name, _op, **_attributes), _name)
register(partial(activation, "activation_mish", "Mish", opset=18), "activation_mish")
register(partial(activation, "activation_gelu", "Gelu", opset=20), "activation_gelu")


@register
def activation_prelu() -> Case:
    net = Net("activation_prelu")
    y = net.node(
        "PRelu", net.conv(net.input("x", [1, 3, SIZE, SIZE]), 3, 8), net.floats(net.rng.uniform(0, 0.3, (8, 1, 1)))
    )
    net.output(net.conv(y, 8, 4))
    return Case(net.model(), photographs(net), min_quantized=2, notes="the slope is a parameter, not an activation")


@register
def activation_silu() -> Case:
    net = Net("activation_silu")
    y = net.conv(net.input("x", [1, 3, SIZE, SIZE]), 3, 8)
    y = net.node("Mul", y, net.node("Sigmoid", y))
    net.output(net.conv(y, 8, 4))
    return Case(net.model(), photographs(net), min_quantized=2, notes="x * sigmoid(x), as YOLO has it")


@register
def activation_hard_swish_decomposed() -> Case:
    net = Net("activation_hard_swish_decomposed")
    y = net.conv(net.input("x", [1, 3, SIZE, SIZE]), 3, 8)
    gate = net.node("Clip", net.node("Add", y, net.floats(3.0)), net.floats(0.0), net.floats(6.0))
    y = net.node("Div", net.node("Mul", y, gate), net.floats(6.0))
    net.output(net.conv(y, 8, 4))
    return Case(net.model(), photographs(net), min_quantized=2)


@register
def squeeze_and_excite() -> Case:
    net = Net("squeeze_and_excite")
    y = net.conv_relu(net.input("x", [1, 3, SIZE, SIZE]), 3, 16)
    gate = net.conv_relu(net.node("GlobalAveragePool", y), 16, 4, 1)
    gate = net.node("Sigmoid", net.conv(gate, 4, 16, 1))
    net.output(net.conv(net.node("Mul", y, gate), 16, 4))
    return Case(net.model(), photographs(net), min_quantized=4, notes="Mul of [1, C, H, W] and [1, C, 1, 1]")
