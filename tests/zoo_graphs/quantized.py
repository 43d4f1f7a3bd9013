"""Models that are quantized already, wholly or in part."""

from __future__ import annotations

import numpy as np

from tests.zoo_graphs.case import Case, register
from tests.zoo_graphs.convolution import SIZE, photographs
from tests.zoo_graphs.net import Net


def quantize_pair(net: Net, x: str, scale: float) -> str:
    """QuantizeLinear and DequantizeLinear on an activation."""
    pair = net.floats(scale), net.constant(np.int8(0))
    return net.node("DequantizeLinear", net.node("QuantizeLinear", x, *pair), *pair)


def quantized_conv(net: Net, x: str, channels_in: int, channels_out: int) -> str:
    weight = net.rng.normal(0, np.sqrt(2 / (9 * channels_in)), (channels_out, channels_in, 3, 3))
    scale = np.abs(weight).max(axis=(1, 2, 3)) / 127
    stored = net.constant(np.round(weight / scale.reshape(-1, 1, 1, 1)).astype(np.int8))
    kernel = net.node(
        "DequantizeLinear", stored, net.floats(scale), net.constant(np.zeros(channels_out, np.int8)), axis=0
    )
    return net.node("Conv", quantize_pair(net, x, 4.0 / 127), kernel, net.bias(channels_out), pads=[1] * 4)


@register
def quantized_already() -> Case:
    net = Net("quantized_already")
    y = net.input("x", [1, 3, SIZE, SIZE])
    for channels_in, channels_out in ((3, 8), (8, 8), (8, 4)):
        y = net.relu(quantized_conv(net, y, channels_in, channels_out))
    net.output(y)
    return Case(net.model(), photographs(net), expect="refused", error_mentions=("quantized", "QuantizeLinear"))


@register
def quantized_in_part() -> Case:
    net = Net("quantized_in_part")
    y = net.relu(quantized_conv(net, net.input("x", [1, 3, SIZE, SIZE]), 3, 8))
    y = net.conv_relu(y, 8, 8)
    net.output(net.conv(y, 8, 4))
    return Case(
        net.model(), photographs(net), min_quantized=2, notes="the first Conv is done: no second pair on top of it"
    )


@register
def quantized_operators_inside() -> Case:
    net = Net("quantized_operators_inside")
    x = net.input("x", [1, 3, SIZE, SIZE])
    scale, zero = net.floats(2.5 / 127), net.constant(np.int8(0))
    stored = net.constant(net.rng.integers(-127, 128, (8, 3, 3, 3)).astype(np.int8))
    q = net.node("QuantizeLinear", x, scale, zero)
    q = net.node("QLinearConv", q, scale, zero, stored, net.floats(0.005), zero, net.floats(0.05), zero, pads=[1] * 4)
    y = net.node("DequantizeLinear", q, net.floats(0.05), zero)
    net.output(net.conv(net.conv_relu(y, 8, 8), 8, 4))
    return Case(
        net.model(),
        photographs(net),
        expect="either",
        error_mentions=("quantized", "QLinearConv"),
        notes="QOperator form",
    )
