"""Operators that move, pick, pool or join values without computing new ones, in chains between convolutions."""

from __future__ import annotations

import numpy as np

from tests.zoo_graphs.case import Case, register
from tests.zoo_graphs.convolution import SIZE, photographs
from tests.zoo_graphs.net import Net


def start(net: Net, channels: int = 8) -> str:
    return net.conv_relu(net.input("x", [1, 3, SIZE, SIZE]), 3, channels)


@register
def pooling_chain() -> Case:
    net = Net("pooling_chain")
    y = net.node("MaxPool", start(net), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    y = net.node("AveragePool", y, kernel_shape=[2, 2], pads=[0, 0, 1, 1], count_include_pad=1)
    y = net.conv(y, 8, 8)
    net.output(net.node("GlobalMaxPool", y))
    net.output(net.classifier(net.relu(y), 8))
    return Case(net.model(), photographs(net), min_quantized=3)


@register
def max_pool_with_indices() -> Case:
    net = Net("max_pool_with_indices")
    pooled, indices = net.many("MaxPool", [start(net)], ("pooled", "indices"), kernel_shape=[2, 2], strides=[2, 2])
    net.output(net.conv(pooled, 8, 4))
    net.output(indices)
    return Case(
        net.model(), photographs(net), min_quantized=2, notes="an int64 second output that nothing may quantize"
    )


@register
def global_average_pool_is_output() -> Case:
    net = Net("global_average_pool_is_output")
    net.output(net.node("GlobalAveragePool", net.conv(start(net), 8, 8)))
    return Case(net.model(), photographs(net), min_quantized=2)


@register
def resize_nearest_and_linear() -> Case:
    net = Net("resize_nearest_and_linear")
    scales = net.constant(np.array([1, 1, 2, 2], np.float32))
    y = net.node("Resize", start(net), "", scales, mode="nearest", coordinate_transformation_mode="asymmetric")
    y = net.conv_relu(y, 8, 4)
    sizes = net.ints(1, 4, 20, 20)
    y = net.node("Resize", y, "", "", sizes, mode="linear", coordinate_transformation_mode="half_pixel")
    net.output(net.conv(y, 4, 4))
    return Case(net.model(), photographs(net), min_quantized=3, notes="empty optional inputs")


@register
def pad_with_values() -> Case:
    net = Net("pad_with_values")
    around = net.ints(0, 0, 1, 1, 0, 0, 1, 1)
    y = net.node("Pad", start(net), around, mode="reflect")
    y = net.node("Pad", net.conv(y, 8, 8), around, net.floats(-9.0))
    net.output(net.conv(net.node("Pad", y, around), 8, 4))
    return Case(
        net.model(), photographs(net), min_quantized=3, notes="the padding value lies outside the range of the tensor"
    )


@register
def moving_chain() -> Case:
    net = Net("moving_chain")
    y = start(net)
    y = net.node("Slice", y, net.ints(1, 1), net.ints(SIZE - 1, SIZE - 1), net.ints(2, 3))
    y = net.node("Transpose", y, perm=[0, 2, 3, 1])
    y = net.node("Reshape", y, net.ints(1, 14 * 14, 8))
    y = net.node("Squeeze", net.node("Unsqueeze", y, net.ints(0)), net.ints(0))
    y = net.node("Transpose", net.node("Reshape", y, net.ints(1, 14, 14, 8)), perm=[0, 3, 1, 2])
    left, right = net.many("Split", [y], ("left", "right"), axis=1)
    net.output(net.conv(left, 4, 4))
    net.output(net.conv(net.node("Expand", right, net.ints(2, 4, 14, 14)), 4, 4, 1))
    return Case(net.model(), photographs(net), min_quantized=3)


@register
def space_to_depth_and_shuffle() -> Case:
    net = Net("space_to_depth_and_shuffle")
    y = net.conv_relu(net.node("SpaceToDepth", net.input("x", [1, 3, SIZE, SIZE]), blocksize=2), 12, 16)
    y = net.node("Reshape", y, net.ints(1, 2, 8, 8, 8))
    y = net.node("Reshape", net.node("Transpose", y, perm=[0, 2, 1, 3, 4]), net.ints(1, 16, 8, 8))
    y = net.conv_relu(y, 16, 16, group=2)
    net.output(net.conv(net.node("DepthToSpace", y, blocksize=2, mode="CRD"), 4, 3))
    return Case(net.model(), photographs(net), min_quantized=3)


@register
def concat_of_branches() -> Case:
    net = Net("concat_of_branches")
    y = start(net)
    pooled = net.node("MaxPool", y, kernel_shape=[3, 3], pads=[1] * 4)
    joined = net.node("Concat", net.conv_relu(y, 8, 4, 1), net.conv_relu(y, 8, 4), pooled, y, axis=1)
    net.output(net.conv(joined, 24, 4))
    return Case(net.model(), photographs(net), min_quantized=4)


@register
def concat_of_the_same_tensor_twice() -> Case:
    net = Net("concat_of_the_same_tensor_twice")
    y = start(net)
    net.output(net.conv(net.node("Concat", y, y, axis=1), 16, 4))
    return Case(net.model(), photographs(net), min_quantized=2)


@register
def concat_with_a_constant_and_an_input() -> Case:
    net = Net("concat_with_a_constant_and_an_input")
    y = start(net)
    coordinates = np.stack(np.meshgrid(np.linspace(-1, 1, SIZE), np.linspace(-1, 1, SIZE)))[None]
    joined = net.node("Concat", y, net.floats(coordinates), "x", axis=1)
    net.output(net.conv(joined, 13, 4))
    return Case(net.model(), photographs(net), min_quantized=2, notes="CoordConv: a constant among the activations")


@register
def dense_block() -> Case:
    net = Net("dense_block")
    features = start(net)
    for count in range(3):
        new = net.conv_relu(features, 8 + 4 * count, 4)
        features = net.node("Concat", features, new, axis=1)
    net.output(net.classifier(features, 20))
    return Case(net.model(), photographs(net), min_quantized=5, notes="scales shared through a chain of Concats")


@register
def split_three_ways() -> Case:
    net = Net("split_three_ways")
    y = net.conv(net.input("x", [1, 3, SIZE, SIZE]), 3, 12)
    a, b, c = net.many("Split", [y, net.ints(2, 4, 6)], ("a", "b", "c"), axis=1)
    net.output(net.conv(net.node("Concat", c, a, axis=1), 8, 4))
    net.output(net.node("Sigmoid", b))
    return Case(net.model(), photographs(net), min_quantized=2)


@register
def same_tensor_added_to_itself() -> Case:
    net = Net("same_tensor_added_to_itself")
    y = start(net)
    net.output(net.conv(net.node("Add", y, y), 8, 4))
    return Case(net.model(), photographs(net), min_quantized=2)


@register
def gather_and_scatter() -> Case:
    net = Net("gather_and_scatter")
    y = start(net)
    picked = net.node("Gather", y, net.ints(7, 0, 3, 3), axis=1)
    tiled = net.node("Tile", picked, net.ints(1, 2, 1, 1))
    net.output(net.conv(net.node("Add", tiled, y), 8, 4))
    return Case(net.model(), photographs(net), min_quantized=2)


@register
def pad_with_the_lowest_half_before_max_pool() -> Case:
    net = Net("pad_with_the_lowest_half_before_max_pool")
    around = net.ints(0, 0, 1, 1, 0, 0, 1, 1)
    y = net.node("Pad", start(net), around, net.floats(-65504.0))
    y = net.node("MaxPool", y, kernel_shape=[3, 3], strides=[2, 2])
    net.output(net.conv(y, 8, 4))
    return Case(net.model(), photographs(net), min_quantized=2, notes="SAME padding as exporters write it")


@register
def pad_with_zeros_before_max_pool() -> Case:
    net = Net("pad_with_zeros_before_max_pool")
    y = net.conv(start(net), 8, 4)
    y = net.node("Pad", y, net.ints(0, 0, 1, 1, 0, 0, 1, 1))
    y = net.node("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
    net.output(net.conv(y, 4, 4))
    return Case(net.model(), photographs(net), min_quantized=3, notes="onnxruntime's Pad fusion gets this wrong")


@register
def concat_with_an_empty_constant() -> Case:
    net = Net("concat_with_an_empty_constant")
    y = start(net)
    y = net.node("Concat", y, net.floats(np.zeros((1, 0, SIZE, SIZE))), axis=1)
    net.output(net.conv(y, 8, 4))
    return Case(net.model(), photographs(net), min_quantized=2)
