"""Convolutions of every kind: strides, groups, transposed, one and three dimensions, shared weights."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from onnx import helper

from tests.zoo_graphs.case import Case, Feeds, register
from tests.zoo_graphs.net import Net

SIZE = 16


def photographs(net: Net, count: int = 4, channels: int = 3, size: int = SIZE) -> Feeds:
    return [{"x": net.image(1, channels, size, size)} for _ in range(count)]


@register
def conv_bn_relu_residual() -> Case:
    net = Net("conv_bn_relu_residual")
    x = net.input("x", [1, 3, SIZE, SIZE])
    stem = net.relu(net.batch_norm(net.conv(x, 3, 8, bias=False), 8))
    left = net.relu(net.batch_norm(net.conv(stem, 8, 16, bias=False, strides=[2, 2]), 16))
    left = net.batch_norm(net.conv(left, 16, 16, bias=False), 16)
    shortcut = net.batch_norm(net.conv(stem, 8, 16, 1, bias=False, strides=[2, 2]), 16)
    y = net.relu(net.node("Add", left, shortcut))
    net.output(net.classifier(y, 16))
    return Case(net.model(), photographs(net), min_quantized=5, notes="projection shortcut, strides, foldable BN")


@register
def conv_identity_residual() -> Case:
    net = Net("conv_identity_residual")
    stem = net.conv_relu(net.input("x", [1, 3, SIZE, SIZE]), 3, 8)
    block = net.conv(net.conv_relu(stem, 8, 8), 8, 8)
    net.output(net.classifier(net.relu(net.node("Add", stem, block)), 8))
    return Case(net.model(), photographs(net), min_quantized=4, notes="the shortcut has two readers")


def mobilenet_like(opset: int) -> Case:
    net = Net(f"mobilenet_like_{opset}", opset=opset)

    def relu6(value: str) -> str:
        if opset < 11:
            return net.node("Clip", value, min=0.0, max=6.0)
        return net.node("Clip", value, net.floats(0.0), net.floats(6.0))

    x = net.input("x", [1, 3, SIZE, SIZE])
    stem = relu6(net.batch_norm(net.conv(x, 3, 8, bias=False, strides=[2, 2]), 8))
    wide = relu6(net.batch_norm(net.conv(stem, 8, 24, 1, bias=False), 24))
    deep = relu6(net.batch_norm(net.conv(wide, 24, 24, bias=False, group=24), 24))
    y = net.node("Add", net.batch_norm(net.conv(deep, 24, 8, 1, bias=False), 8), stem)
    net.output(net.classifier(y, 8))
    notes = "depthwise convolution, Clip 0..6 as " + ("attributes" if opset < 11 else "inputs")
    return Case(net.model(), photographs(net), minimum_db=28.0, min_quantized=5, notes=notes)


register(partial(mobilenet_like, 9), "mobilenet_like_clip_attributes")
register(partial(mobilenet_like, 13), "mobilenet_like_clip_inputs")


@register
def clip_without_maximum() -> Case:
    net = Net("clip_without_maximum")
    x = net.input("x", [1, 3, SIZE, SIZE])
    low_only = net.node("Clip", net.conv(x, 3, 8), net.floats(0.0))
    high_only = net.node("Clip", net.conv(low_only, 8, 8), "", net.floats(1.5))
    net.output(net.conv(high_only, 8, 4))
    return Case(net.model(), photographs(net), min_quantized=3, notes="Clip with a missing bound on either side")


def one_conv(name: str, weight_shape: tuple[int, ...], x_shape: tuple[int, ...], **attributes: Any) -> Case:
    """A convolution of any rank between two pointwise ones, so that its input and output are quantized too."""
    net = Net(name)
    rank = len(x_shape) - 2
    x = net.input("x", list(x_shape))
    before = net.relu(
        net.node("Conv", x, net.weight(weight_shape[1], x_shape[1], *[1] * rank), net.bias(weight_shape[1]))
    )
    y = net.node("Conv", before, net.weight(*weight_shape), net.bias(weight_shape[0]), **attributes)
    after = net.node("Conv", net.relu(y), net.weight(4, weight_shape[0], *[1] * rank))
    net.output(after)
    feeds = [{"x": net.image(*x_shape)} for _ in range(4)]
    return Case(net.model(), feeds, minimum_db=28.0, min_quantized=3)


for _name, _weight, _shape, _attributes in (
    ("conv_1d", (6, 4, 3), (2, 3, 32), {"pads": [1, 1]}),
    ("conv_3d", (6, 4, 3, 3, 3), (1, 2, 6, 8, 8), {"pads": [1] * 6}),
    ("conv_auto_pad_same_upper", (6, 4, 4, 4), (1, 3, 15, 15), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ("conv_auto_pad_same_lower", (6, 4, 4, 4), (1, 3, 15, 15), {"auto_pad": "SAME_LOWER"}),
    ("conv_auto_pad_valid", (6, 4, 3, 3), (1, 3, 16, 16), {"auto_pad": "VALID"}),
    ("conv_asymmetric_pads", (6, 4, 3, 3), (1, 3, 16, 16), {"pads": [0, 1, 2, 0]}),
    ("conv_dilation", (6, 4, 3, 3), (1, 3, 16, 16), {"dilations": [2, 3], "pads": [2, 3, 2, 3]}),
):
    register(partial(one_conv, _name, _weight, _shape, **_attributes), _name)


@register
def conv_transpose_grouped_batch_norm() -> Case:
    net = Net("conv_transpose_grouped_batch_norm")
    y = net.conv_relu(net.input("x", [1, 3, 8, 8]), 3, 8)
    weight = net.weight(8, 3, 4, 4, fan_in=4 * 4)
    up = net.node("ConvTranspose", y, weight, net.bias(6), group=2, strides=[2, 2], pads=[1, 1, 1, 1])
    net.output(net.conv(net.relu(net.batch_norm(up, 6)), 6, 2))
    return Case(
        net.model(), photographs(net, size=8), notes="weight [C_in, C_out / group, ...]: the BN axis is not axis 1"
    )


@register
def conv_transpose_output_padding() -> Case:
    net = Net("conv_transpose_output_padding")
    y = net.conv_relu(net.input("x", [1, 3, 8, 8]), 3, 4)
    weight = net.weight(4, 6, 3, 3, fan_in=9)
    up = net.node(
        "ConvTranspose", y, weight, strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1], dilations=[1, 1]
    )
    net.output(net.conv(net.relu(up), 6, 2))
    return Case(net.model(), photographs(net, size=8))


@register
def shared_weight_between_convs() -> Case:
    net = Net("shared_weight_between_convs")
    y = net.conv_relu(net.input("x", [1, 3, SIZE, SIZE]), 3, 8)
    weight = net.weight(8, 8, 3, 3)
    for _ in range(2):
        y = net.relu(net.node("Conv", y, weight, net.bias(8), pads=[1] * 4))
    net.output(net.classifier(y, 8))
    return Case(net.model(), photographs(net), min_quantized=4)


@register
def shared_bias_with_different_scales() -> Case:
    net = Net("shared_bias_with_different_scales")
    y = net.conv_relu(net.input("x", [1, 3, SIZE, SIZE]), 3, 8)
    bias = net.floats(net.rng.normal(0, 1.0, 8), "the_bias")
    small = net.node("Conv", y, net.weight(8, 8, 3, 3, gain=0.02), bias, pads=[1] * 4)
    large = net.node("Conv", net.relu(small), net.weight(8, 8, 3, 3, gain=40.0), bias, pads=[1] * 4)
    net.output(small)
    net.output(large)
    return Case(
        net.model(), photographs(net), min_quantized=3, notes="one bias, two products of input and weight scale"
    )


@register
def shared_weight_and_bias_batch_norm() -> Case:
    net = Net("shared_weight_and_bias_batch_norm")
    x = net.input("x", [1, 3, SIZE, SIZE])
    weight, bias = net.weight(8, 3, 3, 3), net.bias(8)
    first = net.batch_norm(net.node("Conv", x, weight, bias, pads=[1] * 4), 8)
    second = net.batch_norm(net.node("Conv", x, weight, bias, pads=[1] * 4), 8)
    net.output(net.node("Add", first, second))
    return Case(net.model(), photographs(net), notes="folding one BN in place would change the other Conv")


@register
def weight_is_graph_output() -> Case:
    net = Net("weight_is_graph_output")
    x = net.input("x", [1, 3, SIZE, SIZE])
    weight = net.weight(8, 3, 3, 3, name="kernel")
    net.output(net.conv(net.relu(net.node("Conv", x, weight, pads=[1] * 4)), 8, 4))
    net.output(weight, [8, 3, 3, 3])
    return Case(net.model(), photographs(net), min_quantized=2, exact_outputs=("kernel",))


@register
def constant_node_weights() -> Case:
    net = Net("constant_node_weights")
    x = net.input("x", [1, 3, SIZE, SIZE])
    y = net.conv_relu(x, 3, 8)
    net.output(net.conv(y, 8, 4))
    _initializers_to_constant_nodes(net)
    return Case(net.model(), photographs(net), min_quantized=2)


@register
def weight_behind_identity_and_transpose() -> Case:
    net = Net("weight_behind_identity_and_transpose")
    x = net.input("x", [1, 3, SIZE, SIZE])
    kernel = net.node("Transpose", net.weight(3, 3, 3, 8, fan_in=27), perm=[3, 2, 0, 1])
    y = net.relu(net.node("Conv", x, net.node("Identity", kernel), net.bias(8), pads=[1] * 4))
    net.output(net.conv(y, 8, 4))
    return Case(net.model(), photographs(net), min_quantized=1, notes="kernel stored as HWIO, as tf2onnx leaves it")


@register
def detector_head() -> Case:
    net = Net("detector_head")
    x = net.input("x", [1, 3, 32, 32])
    coarse = net.conv_relu(x, 3, 8, strides=[2, 2])
    fine = net.conv_relu(coarse, 8, 16, strides=[2, 2])
    levels = []
    for feature, channels in ((coarse, 8), (fine, 16)):
        head = net.conv(feature, channels, 6, 1)
        levels.append(net.node("Reshape", head, net.ints(1, 6, -1)))
    joined = net.node("Transpose", net.node("Concat", *levels, axis=2), perm=[0, 2, 1])
    net.output(net.node("Sigmoid", joined, output="detections"))
    return Case(net.model(), photographs(net, size=32), min_quantized=4)


@register
def three_input_sum() -> Case:
    net = Net("three_input_sum")
    x = net.input("x", [1, 3, SIZE, SIZE])
    y = net.node("Sum", net.conv(x, 3, 8), net.conv(x, 3, 8, 1), net.conv(x, 3, 8, 5))
    net.output(net.conv(net.relu(y), 8, 4))
    return Case(net.model(), photographs(net), min_quantized=4)


@register
def conv_with_computed_kernel() -> Case:
    net = Net("conv_with_computed_kernel")
    x, style = net.input("x", [1, 3, SIZE, SIZE]), net.input("style", [1, 8])
    kernel = net.node("Reshape", net.gemm(style, 8, 4 * 3), net.ints(4, 3, 1, 1))
    net.output(net.node("Conv", x, kernel))
    feeds = [{"x": net.image(1, 3, SIZE, SIZE), "style": net.normal(1, 8)} for _ in range(4)]
    return Case(net.model(), feeds, notes="the Conv has no constant weight")


def _initializers_to_constant_nodes(net: Net) -> None:
    constants = [helper.make_node("Constant", [], [t.name], name=f"make_{t.name}", value=t) for t in net.initializers]
    net.nodes[:0] = constants
    net.initializers.clear()


@register
def dynamic_height_and_width() -> Case:
    net = Net("dynamic_height_and_width")
    x = net.input("x", ["batch", 3, "height", "width"])
    y = net.conv_relu(net.conv_relu(x, 3, 8, strides=[2, 2]), 8, 8)
    net.output(net.conv(y, 8, 4, 1), ["batch", 4, None, None])
    net.output(net.classifier(y, 8), ["batch", 10])
    sizes = ((16, 16), (24, 10), (9, 31), (32, 32))
    feeds = [{"x": net.image(1, 3, *size)} for size in sizes]
    return Case(net.model(), feeds, min_quantized=4, notes="every sample has another shape")


@register
def dynamic_batch() -> Case:
    net = Net("dynamic_batch")
    x = net.input("x", ["N", 3, SIZE, SIZE])
    net.output(net.classifier(net.conv_relu(x, 3, 8), 8), ["N", 10])
    feeds = [{"x": np.concatenate([net.image(1, 3, SIZE, SIZE) for _ in range(n)])} for n in (4, 4, 1)]
    return Case(net.model(), feeds, min_quantized=2, notes="the last batch is shorter")
