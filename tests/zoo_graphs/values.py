"""Numbers that break scales: dead channels, tiny and huge weights, constant and zero inputs, outliers."""

from __future__ import annotations

from functools import partial

import numpy as np

from tests.zoo_graphs.case import Case, register
from tests.zoo_graphs.convolution import SIZE, photographs
from tests.zoo_graphs.net import Net


def scaled_conv(name: str, weight_scale: float, bias: float, minimum_db: float = 30.0) -> Case:
    """A convolution with weights of the given size between ordinary ones; its output is a graph output too."""
    net = Net(name)
    y = net.conv_relu(net.input("x", [1, 3, SIZE, SIZE]), 3, 8)
    weight = net.floats(net.rng.normal(0, weight_scale, (8, 8, 3, 3)))
    inputs = [y, weight] + ([net.floats(np.full(8, bias))] if bias else [])
    y = net.node("Conv", *inputs, pads=[1] * 4)
    net.output(y)
    net.output(net.conv(y, 8, 4))
    return Case(net.model(), photographs(net), minimum_db=minimum_db, min_quantized=2)


for _name, _scale, _bias in (
    ("weights_1e_9_bias_5", 1e-9, 5.0),
    ("weights_1e_30_bias_1", 1e-30, 1.0),
    ("weights_1e_12_without_bias", 1e-12, 0.0),
    ("weights_1e6", 1e6, 1.0),
    ("weights_1e6_bias_1e9", 1e6, 1e9),
):
    register(partial(scaled_conv, _name, _scale, _bias), _name)


@register
def dead_channels() -> Case:
    net = Net("dead_channels")
    x = net.input("x", [1, 3, SIZE, SIZE])
    weight = net.rng.normal(0, 0.27, (8, 3, 3, 3))
    weight[[1, 4]] = 0.0
    bias = net.rng.normal(0, 0.1, 8)
    bias[1] = 0.0
    y = net.relu(net.node("Conv", x, net.floats(weight), net.floats(bias), pads=[1] * 4))
    net.output(net.conv(y, 8, 4))
    return Case(net.model(), photographs(net), min_quantized=2, notes="two channels are zero, one of them has a bias")


@register
def all_zero_weight() -> Case:
    net = Net("all_zero_weight")
    x = net.input("x", [1, 3, SIZE, SIZE])
    dead = net.node("Conv", x, net.floats(np.zeros((8, 3, 3, 3))), pads=[1] * 4)
    net.output(net.conv(net.node("Add", net.conv(x, 3, 8), net.relu(dead)), 8, 4))
    return Case(net.model(), photographs(net), min_quantized=2, notes="the range of a whole tensor is [0, 0]")


@register
def channels_of_very_different_size() -> Case:
    net = Net("channels_of_very_different_size")
    x = net.input("x", [1, 3, SIZE, SIZE])
    size = np.logspace(-4, 1, 8).reshape(8, 1, 1, 1)
    y = net.relu(net.node("Conv", x, net.floats(net.rng.normal(0, 0.3, (8, 3, 3, 3)) * size), pads=[1] * 4))
    net.output(net.conv(y, 8, 4))
    return Case(
        net.model(), photographs(net), min_quantized=2, notes="one scale for the whole weight would lose channels"
    )


@register
def constant_input() -> Case:
    net = Net("constant_input")
    x = net.input("x", [1, 3, SIZE, SIZE])
    net.output(net.classifier(net.conv_relu(x, 3, 8), 8))
    feeds = [{"x": np.full((1, 3, SIZE, SIZE), 0.7, np.float32)}] * 3
    return Case(net.model(), feeds, minimum_db=25.0, min_quantized=2, notes="the histogram has one bin")


@register
def zero_input() -> Case:
    net = Net("zero_input")
    x = net.input("x", [1, 3, SIZE, SIZE])
    net.output(net.classifier(net.conv_relu(x, 3, 8), 8))
    feeds = [{"x": np.zeros((1, 3, SIZE, SIZE), np.float32)}] * 3
    return Case(net.model(), feeds, minimum_db=25.0, min_quantized=2, notes="the range of the input is [0, 0]")


@register
def pixels_0_to_255() -> Case:
    net = Net("pixels_0_to_255")
    x = net.input("x", [1, 3, SIZE, SIZE])
    y = net.node("Mul", net.node("Sub", x, net.floats([[[123.7]], [[116.3]], [[103.5]]])), net.floats(1 / 58.0))
    net.output(net.conv(net.conv_relu(y, 3, 8), 8, 4))
    feeds = [{"x": np.round(np.clip(net.image(1, 3, SIZE, SIZE) * 55 + 120, 0, 255))} for _ in range(4)]
    return Case(net.model(), feeds, min_quantized=2, notes="preprocessing inside the model")


@register
def strictly_positive_far_from_zero() -> Case:
    net = Net("strictly_positive_far_from_zero")
    x = net.input("x", [1, 3, SIZE, SIZE])
    net.output(net.conv(net.relu(net.conv(x, 3, 8)), 8, 4))
    feeds = [{"x": net.image(1, 3, SIZE, SIZE) + np.float32(10)} for _ in range(4)]
    return Case(
        net.model(), feeds, minimum_db=25.0, min_quantized=2, notes="the range has to include zero for the padding"
    )


@register
def concat_of_very_different_ranges() -> Case:
    net = Net("concat_of_very_different_ranges")
    x = net.input("x", [1, 3, SIZE, SIZE])
    small = net.node("Sigmoid", net.conv(x, 3, 4))
    large = net.node("Mul", net.conv_relu(x, 3, 4), net.floats(10.0))
    joined = net.node("Concat", small, large, axis=1)
    scale = np.concatenate([np.full(4, 1.0), np.full(4, 0.1)]).reshape(1, 8, 1, 1)
    weight = net.rng.normal(0, 0.3, (4, 8, 1, 1)) * scale
    net.output(net.node("Conv", joined, net.floats(weight)))
    return Case(
        net.model(),
        photographs(net),
        minimum_db=10.0,
        min_quantized=3,
        notes="one scale for both costs the small branch its bits",
    )


@register
def activation_outliers() -> Case:
    net = Net("activation_outliers")
    x = net.input("x", [1, 3, SIZE, SIZE])
    net.output(net.conv(net.conv_relu(x, 3, 8), 8, 4))
    feeds = photographs(net)
    feeds[1]["x"][0, 0, 3, 3] = 30.0
    return Case(net.model(), feeds, minimum_db=20.0, min_quantized=2, notes="one pixel far outside")


@register
def non_finite_sample() -> Case:
    net = Net("non_finite_sample")
    x = net.input("x", [1, 3, SIZE, SIZE])
    net.output(net.conv(net.conv_relu(x, 3, 8), 8, 4))
    feeds = photographs(net)
    feeds[1]["x"][0, 0, 3, 3] = np.inf
    return Case(
        net.model(),
        feeds,
        expect="either",
        error_mentions=("finite", "inf"),
        minimum_db=20.0,
        notes="an infinite sample must not become an infinite scale",
    )
