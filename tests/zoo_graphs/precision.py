"""Models that are not float32: half, bfloat16, double, and mixtures."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from onnx import TensorProto

from tests.zoo_graphs.case import Case, register
from tests.zoo_graphs.convolution import SIZE, photographs
from tests.zoo_graphs.dense import ROWS, K, vectors
from tests.zoo_graphs.net import Net


@register
def fp16_cnn() -> Case:
    net = Net("fp16_cnn", dtype=np.float16)
    x = net.input("x", [1, 3, SIZE, SIZE])
    y = net.relu(net.batch_norm(net.conv(x, 3, 8, bias=False), 8))
    y = net.node("MaxPool", net.relu(net.node("Add", y, net.conv(y, 8, 8))), kernel_shape=[2, 2], strides=[2, 2])
    net.output(net.classifier(y, 8))
    return Case(net.model(), photographs(net), min_quantized=3, notes="inputs, weights and outputs are float16")


@register
def fp16_inside_float32_outside() -> Case:
    net = Net("fp16_inside_float32_outside", dtype=np.float16)
    x = net.node("Cast", net.input("x", [1, 3, SIZE, SIZE], np.float32), to=TensorProto.FLOAT16)
    y = net.conv(net.conv_relu(x, 3, 8), 8, 4)
    net.output(net.node("Cast", y, to=TensorProto.FLOAT))
    feeds = [{"x": net.image(1, 3, SIZE, SIZE).astype(np.float32)} for _ in range(4)]
    return Case(net.model(), feeds, min_quantized=2, notes="a half-precision export that kept its float32 interface")


@register
def bf16_stored_weights() -> Case:
    net = Net("bf16_stored_weights")
    y = net.input("x", [ROWS, K])
    for _ in range(2):
        stored = net.constant(net.rng.normal(0, np.sqrt(2 / K), (K, K)).astype(ml_dtypes.bfloat16))
        y = net.relu(net.node("MatMul", y, net.node("Cast", stored, to=TensorProto.FLOAT)))
    net.output(net.gemm(y, K, 8))
    return Case(net.model(), vectors(net), notes="bfloat16 initializers behind a Cast to float")


@register
def bf16_everywhere() -> Case:
    net = Net("bf16_everywhere", dtype=ml_dtypes.bfloat16)
    net.output(net.relu(net.node("MatMul", net.input("x", [ROWS, K]), net.weight(K, K))))
    return Case(
        net.model(),
        vectors(net),
        expect="refused",
        error_mentions=("bfloat16", "bf16"),
        runs_in_onnxruntime=False,
        notes="onnxruntime has no bfloat16 kernels on a CPU, so the result could not be checked",
    )


@register
def bf16_inside_float32_outside() -> Case:
    net = Net("bf16_inside_float32_outside", dtype=ml_dtypes.bfloat16)
    y = net.node("Cast", net.input("x", [ROWS, K], np.float32), to=TensorProto.BFLOAT16)
    for _ in range(2):
        y = net.relu(net.linear(y, K, K))
    net.output(net.node("Cast", y, to=TensorProto.FLOAT))
    feeds = [{"x": net.normal(ROWS, K).astype(np.float32)} for _ in range(4)]
    return Case(
        net.model(),
        feeds,
        expect="either",
        min_quantized=2,
        error_mentions=("bfloat16", "bf16"),
        runs_in_onnxruntime=False,
        notes="could be widened to float32; the reference is onnx's own evaluator",
    )


@register
def double_net() -> Case:
    net = Net("double_net", dtype=np.float64)
    net.output(net.gemm(net.relu(net.gemm(net.input("x", [ROWS, K]), K, K)), K, 8))
    return Case(
        net.model(),
        vectors(net),
        expect="either",
        error_mentions=("float64", "double"),
        notes="QuantizeLinear takes no double",
    )


@register
def double_tail_behind_float_net() -> Case:
    net = Net("double_tail_behind_float_net")
    y = net.gemm(net.relu(net.gemm(net.input("x", [ROWS, K]), K, K)), K, 8)
    wide = net.node("Cast", y, to=TensorProto.DOUBLE)
    net.output(net.node("MatMul", wide, net.constant(net.rng.normal(0, 0.3, (8, 4)))))
    return Case(net.model(), vectors(net), min_quantized=2, notes="only the tail is double: it has to stay as it is")
