"""Names that collide with generated ones, repeat, are empty, or hold characters that break other tools."""

from __future__ import annotations

from tests.zoo_graphs.case import Case, register
from tests.zoo_graphs.convolution import SIZE, photographs
from tests.zoo_graphs.net import Net

SUFFIXES = (
    "_QuantizeLinear",
    "_DequantizeLinear",
    "_QuantizeLinear_Output",
    "_DequantizeLinear_Output",
    "_quantized",
    "_dequantized",
    "_scale",
    "_zero_point",
    "_Q",
    "_DQ",
    "_1",
)


@register
def names_like_generated_ones() -> Case:
    net = Net("names_like_generated_ones")
    x = net.input("x", [1, 3, SIZE, SIZE])
    weight = net.weight(8, 3, 3, 3, name="w")
    y = net.node("Conv", x, weight, output="x_quantized", name="w_QuantizeLinear", pads=[1] * 4)
    for count, suffix in enumerate(SUFFIXES):
        base = ("x", "w", "x_quantized")[count % 3]
        y = net.node("Relu", y, output=f"{base}{suffix}_", name=f"{base}{suffix}")
    for base in ("x", "w"):
        for suffix in SUFFIXES:
            if f"{base}{suffix}" == "x_quantized":
                continue
            value = net.floats(net.rng.uniform(0.9, 1.1, (8, 1, 1)), f"{base}{suffix}")
            y = net.node("Mul", y, value, name=f"{base}{suffix}_node")
    net.output(net.conv(y, 8, 4))
    return Case(net.model(), photographs(net), min_quantized=2, notes="every suffix that a quantizer likes to append")


@register
def outputs_named_like_generated_ones() -> Case:
    net = Net("outputs_named_like_generated_ones")
    x = net.input("x", [1, 3, SIZE, SIZE])
    y = net.node("Conv", x, net.weight(8, 3, 3, 3, name="w"), output="x_DequantizeLinear", pads=[1] * 4)
    y = net.node(
        "Conv", net.node("Relu", y, output="w_scale"), net.weight(4, 8, 1, 1, name="w_quantized"), output="w_zero_point"
    )
    net.output("x_DequantizeLinear")
    net.output(y)
    return Case(net.model(), photographs(net), min_quantized=2, notes="graph outputs own the names")


@register
def duplicate_and_empty_node_names() -> Case:
    net = Net("duplicate_and_empty_node_names")
    y = net.input("x", [1, 3, SIZE, SIZE])
    for channels_in, channels_out, name in ((3, 8, "conv"), (8, 8, "conv"), (8, 8, ""), (8, 4, "")):
        weight = net.weight(channels_out, channels_in, 3, 3)
        y = net.node("Conv", y, weight, net.bias(channels_out), pads=[1] * 4, name=name)
        y = net.node("Relu", y, name="")
    net.output(y)
    return Case(
        net.model(),
        photographs(net),
        minimum_db=27.0,
        min_quantized=4,
        notes="onnxruntime loads no twins",
    )


@register
def unicode_names() -> Case:
    net = Net("unicode_names")
    x = net.input("x", [1, 3, SIZE, SIZE])
    weight = net.weight(8, 3, 3, 3, name="/модель/conv 1/weight:0")
    y = net.node("Conv", x, weight, output="/層1/conv::out put", name="/層1/Conv 'a' \"b\" [0]", pads=[1] * 4)
    y = net.node("Relu", y, output="relu;%s{}\\n", name="relu\twith\ttabs")
    y = net.node("Conv", y, net.weight(4, 8, 1, 1, name="*?[w]"), output="résultat final", name="op:Conv")
    net.output(y)
    return Case(
        net.model(), photographs(net), min_quantized=2, notes="slashes, colons, spaces, quotes, glob characters"
    )


@register
def nodes_named_like_tensors() -> Case:
    net = Net("nodes_named_like_tensors")
    x = net.input("x", [1, 3, SIZE, SIZE])
    y = net.node("Conv", x, net.weight(8, 3, 3, 3, name="w"), output="y", name="x", pads=[1] * 4)
    y = net.node("Conv", net.node("Relu", y, output="z", name="w"), net.weight(4, 8, 1, 1), output="out", name="z")
    net.output(y)
    return Case(net.model(), photographs(net), min_quantized=2, notes="node and tensor names are two separate spaces")
