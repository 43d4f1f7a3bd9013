"""The same convolutional net in every opset from 7 to the newest that onnxruntime loads, and odd opset imports."""

from __future__ import annotations

from functools import partial

from tests.zoo_graphs.case import Case, register
from tests.zoo_graphs.convolution import SIZE, photographs
from tests.zoo_graphs.net import Net

OPSETS = (7, 8, 9, 10, 11, 12, 13, 15, 17, 18, 19, 20, 21, 22, 23, 24)


def conv_net(opset: int, ir_version: int | None = None) -> Case:
    net = Net(f"conv_net_{opset}", opset=opset, ir_version=ir_version)
    x = net.input("x", ["N", 3, SIZE, SIZE])
    y = net.relu(net.batch_norm(net.conv(x, 3, 8, bias=False), 8))
    y = net.node("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
    y = net.relu(net.node("Add", net.conv(y, 8, 8), y))
    net.output(net.classifier(y, 8), ["N", 10])
    return Case(net.model(), photographs(net), min_quantized=3)


for _opset in OPSETS:
    register(partial(conv_net, _opset), f"conv_net_opset_{_opset:02d}")
register(partial(conv_net, 13, 3), "initializers_listed_as_inputs")


@register
def ai_onnx_spelled() -> Case:
    case = conv_net(14)
    case.model.opset_import[0].domain = "ai.onnx"
    return case


@register
def microsoft_domain_first() -> Case:
    net = Net("microsoft_domain_first")
    net.domains = {"com.microsoft": 1, "ai.onnx.ml": 3, "": 17}
    x = net.input("x", [1, 3, SIZE, SIZE])
    y = net.node("Gelu", net.conv(x, 3, 8), domain="com.microsoft")
    net.output(net.conv(y, 8, 4), [1, 4, SIZE, SIZE])
    return Case(net.model(), photographs(net), min_quantized=2, notes="opset_import[0] is not the opset of the model")
