"""Normalisations that stay as they are: instance, group, local, and BatchNorm that has nothing to fold into."""

from __future__ import annotations

from tests.zoo_graphs.case import Case, register
from tests.zoo_graphs.convolution import SIZE, photographs
from tests.zoo_graphs.net import Net


@register
def instance_normalization() -> Case:
    net = Net("instance_normalization")
    y = net.conv(net.input("x", [1, 3, SIZE, SIZE]), 3, 8)
    scale, shift = net.floats(net.rng.uniform(0.6, 1.4, 8)), net.bias(8)
    y = net.relu(net.node("InstanceNormalization", y, scale, shift))
    net.output(net.conv(y, 8, 4))
    return Case(net.model(), photographs(net), min_quantized=2)


@register
def group_normalization() -> Case:
    net = Net("group_normalization", opset=21)
    y = net.conv(net.input("x", [1, 3, SIZE, SIZE]), 3, 8)
    scale, shift = net.floats(net.rng.uniform(0.6, 1.4, 8)), net.bias(8)
    y = net.relu(net.node("GroupNormalization", y, scale, shift, num_groups=2))
    net.output(net.conv(y, 8, 4), [1, 4, SIZE, SIZE])
    return Case(net.model(), photographs(net), min_quantized=2)


@register
def group_normalization_decomposed() -> Case:
    net = Net("group_normalization_decomposed")
    y = net.conv(net.input("x", [1, 3, SIZE, SIZE]), 3, 8)
    grouped = net.node("Reshape", y, net.ints(0, 2, -1))
    grouped = net.node("InstanceNormalization", grouped, net.floats([1.0, 1.0]), net.floats([0.0, 0.0]))
    y = net.node("Reshape", grouped, net.node("Shape", y))
    y = net.node("Add", net.node("Mul", y, net.floats(net.rng.uniform(0.6, 1.4, (8, 1, 1)))), net.floats([[[0.1]]] * 8))
    net.output(net.conv(net.relu(y), 8, 4), [1, 4, SIZE, SIZE])
    return Case(net.model(), photographs(net), min_quantized=2, notes="as torch exports GroupNorm below opset 18")


@register
def batch_norm_after_relu() -> Case:
    net = Net("batch_norm_after_relu")
    y = net.batch_norm(net.conv_relu(net.input("x", [1, 3, SIZE, SIZE]), 3, 8), 8)
    net.output(net.conv(y, 8, 4))
    return Case(net.model(), photographs(net), min_quantized=2, notes="before a padded Conv: not exact to fold forward")


@register
def batch_norm_after_add() -> Case:
    net = Net("batch_norm_after_add")
    x = net.input("x", [1, 3, SIZE, SIZE])
    y = net.relu(net.batch_norm(net.node("Add", net.conv(x, 3, 8), net.conv(x, 3, 8, 1)), 8))
    net.output(net.conv(y, 8, 4))
    return Case(net.model(), photographs(net), min_quantized=3)


@register
def batch_norm_on_the_input() -> Case:
    net = Net("batch_norm_on_the_input")
    y = net.batch_norm(net.input("x", [1, 3, SIZE, SIZE]), 3)
    net.output(net.conv(net.conv_relu(y, 3, 8, 1), 8, 4))
    return Case(net.model(), photographs(net), min_quantized=2)


@register
def local_response_normalization() -> Case:
    net = Net("local_response_normalization")
    y = net.node("LRN", net.conv_relu(net.input("x", [1, 3, SIZE, SIZE]), 3, 8), size=5)
    net.output(net.conv(y, 8, 4))
    return Case(net.model(), photographs(net), min_quantized=2)
