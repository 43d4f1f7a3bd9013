"""Integer and boolean paths that look like the operators of the float path and must never be quantized."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from tests.zoo_graphs.case import Case, register
from tests.zoo_graphs.convolution import SIZE, photographs
from tests.zoo_graphs.net import Net


@register
def shape_arithmetic() -> Case:
    net = Net("shape_arithmetic")
    x = net.input("x", ["N", 3, "H", "W"])
    y = net.conv_relu(x, 3, 8)
    batch = net.node("Gather", net.node("Shape", y), net.constant(np.int64(0)), axis=0)
    target = net.node("Concat", net.node("Unsqueeze", batch, net.ints(0)), net.ints(8), net.ints(-1), axis=0)
    flat = net.node("Reshape", y, target)
    pooled = net.node("ReduceMean", flat, axes=[2], keepdims=0)
    net.output(net.gemm(pooled, 8, 5), ["N", 5])
    feeds = [{"x": net.image(n, 3, size, size)} for n, size in ((1, 16), (2, 8), (1, 12))]
    return Case(net.model(), feeds, min_quantized=2, notes="Shape, Gather, Concat, Reshape")


@register
def resize_to_computed_size() -> Case:
    net = Net("resize_to_computed_size")
    x = net.input("x", [1, 3, "H", "W"])
    small = net.conv_relu(x, 3, 8, strides=[2, 2])
    shape = net.node("Shape", x)
    size = net.node("Slice", shape, net.ints(2), net.ints(4), net.ints(0))
    sizes = net.node(
        "Concat", net.ints(1, 8), net.node("Div", net.node("Mul", size, net.ints(2, 2)), net.ints(2)), axis=0
    )
    up = net.node("Resize", small, "", "", sizes, mode="nearest")
    net.output(net.conv(up, 8, 4), [1, 4, None, None])
    feeds = [{"x": net.image(1, 3, *size)} for size in ((16, 16), (12, 20))]
    return Case(net.model(), feeds, min_quantized=2, notes="int64 Mul and Div")


@register
def arg_max_and_top_k() -> Case:
    net = Net("arg_max_and_top_k")
    logits = net.classifier(net.conv_relu(net.input("x", [1, 3, SIZE, SIZE]), 3, 8), 8)
    net.output(net.node("ArgMax", logits, axis=1))
    values, indices = net.many("TopK", [logits, net.ints(3)], ("values", "indices"), axis=1)
    net.output(values)
    net.output(indices)
    return Case(net.model(), photographs(net), min_quantized=2)


@register
def int64_arithmetic() -> Case:
    net = Net("int64_arithmetic")
    tokens = net.input("tokens", [1, 6], np.int64)
    shifted = net.node("Add", net.node("Mul", tokens, net.ints(2)), net.ints(1))
    table = net.weight(40, 16, fan_in=1, gain=1.0)
    positions = net.node("Gather", net.weight(6, 16, fan_in=4, gain=1.0), net.ints(0, 1, 2, 3, 4, 5))
    hidden = net.node("Add", net.node("Gather", table, shifted), positions)
    net.output(net.linear(net.relu(net.linear(hidden, 16, 16)), 16, 8))
    net.output(net.node("Identity", shifted, output="shifted"))
    feeds = [{"tokens": net.rng.integers(0, 19, (1, 6))} for _ in range(6)]
    return Case(net.model(), feeds, min_quantized=2, exact_outputs=("shifted",), notes="no float input at all")


@register
def boolean_where() -> Case:
    net = Net("boolean_where")
    x = net.input("x", [1, 3, SIZE, SIZE])
    y = net.conv(x, 3, 8)
    positive = net.node("Greater", y, net.floats(0.0))
    both = net.node("And", positive, net.node("Not", net.node("Greater", y, net.floats(20.0))))
    y = net.node("Where", both, y, net.floats(0.0))
    net.output(net.conv(y, 8, 4))
    return Case(net.model(), photographs(net), min_quantized=2)


@register
def uint8_image_input() -> Case:
    net = Net("uint8_image_input")
    pixels = net.node("Cast", net.input("x", [1, SIZE, SIZE, 3], np.uint8), to=TensorProto.FLOAT)
    y = net.node("Transpose", net.node("Div", pixels, net.floats(255.0)), perm=[0, 3, 1, 2])
    net.output(net.conv(net.conv_relu(y, 3, 8), 8, 4))
    feeds = [{"x": net.rng.integers(0, 256, (1, SIZE, SIZE, 3)).astype(np.uint8)} for _ in range(4)]
    return Case(net.model(), feeds, min_quantized=2)


@register
def non_max_suppression_tail() -> Case:
    net = Net("non_max_suppression_tail")
    y = net.conv_relu(net.input("x", [1, 3, 8, 8]), 3, 8)
    corners = net.node("Transpose", net.node("Reshape", net.conv(y, 8, 4, 1), net.ints(1, 4, -1)), perm=[0, 2, 1])
    centers = net.floats(
        np.stack(np.meshgrid(np.arange(8), np.arange(8), [2.0], [2.0], indexing="ij"), -1).reshape(1, 64, 4)
    )
    boxes = net.node("Add", net.node("Mul", corners, net.floats(0.1)), centers)
    scores = net.node("Sigmoid", net.node("Reshape", net.conv(y, 8, 3, 1), net.ints(1, 3, -1)))
    picked = net.node(
        "NonMaxSuppression", boxes, scores, net.ints(5), net.floats([0.5]), net.floats([0.3]), center_point_box=1
    )
    net.output(boxes)
    net.output(scores)
    net.output(picked, [None, 3], np.int64)
    return Case(net.model(), photographs(net, size=8), min_quantized=3, notes="post-processing tail stays float")
