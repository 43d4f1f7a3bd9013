"""Quantizing operators in torch: as onnxruntime has them, in every granularity, with gradients straight through."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from onnxq.graph import Graph
from onnxq.torchnet import TorchNet, to_torch
from tests.torchnet.one_node import assert_like_onnxruntime, in_torch, one_node

RNG = np.random.default_rng(8)
X = RNG.normal(0, 3, (4, 6)).astype(np.float32)
SCALE = np.array(0.05, np.float32)
SCALES = np.array([0.05, 0.1, 0.02, 0.3], np.float32)
SEVEN_BITS = 64
"""Signed weights stay below it: without VNNI onnxruntime adds pairs of 8-bit products in 16 bits, which saturate."""

BLOCK_SCALES = RNG.uniform(0.02, 0.1, (4, 2)).astype(np.float32)


@pytest.mark.parametrize("opset", [10, 13, 19, 21])
@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_tensors_are_quantized_as_in_onnxruntime(opset: int, kind: Any) -> None:
    ties = np.array([[0.125, 0.375, -0.125, 1e9, -1e9]], np.float32)
    for x in (X, ties):
        for scale in (SCALE, np.array(0.25, np.float32)):
            assert_like_onnxruntime("QuantizeLinear", [x, scale, np.array(3, kind)], opset=opset)
    q = np.arange(24).reshape(4, 6).astype(kind)
    assert_like_onnxruntime("DequantizeLinear", [q, SCALE, np.array(3, kind)], opset=opset)
    assert_like_onnxruntime("DequantizeLinear", [q, SCALE], opset=opset)


@pytest.mark.parametrize("opset", [13, 21])
@pytest.mark.parametrize("axis", [0, -2])
def test_channels_are_quantized_as_in_onnxruntime(opset: int, axis: int) -> None:
    zeros = np.array([0, 1, -5, 9], np.int8)
    assert_like_onnxruntime("QuantizeLinear", [X, SCALES, zeros], opset=opset, axis=axis)
    q = RNG.integers(-128, 127, (4, 6)).astype(np.int8)
    assert_like_onnxruntime("DequantizeLinear", [q, SCALES, zeros], opset=opset, axis=axis)


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.uint16])
@pytest.mark.parametrize("block_size", [3, 4])
def test_blocks_are_quantized_as_in_onnxruntime_also_the_last_short_one(kind: Any, block_size: int) -> None:
    zeros = np.arange(8).reshape(4, 2).astype(kind)
    how = {"opset": 21, "axis": 1, "block_size": block_size}
    assert_like_onnxruntime("QuantizeLinear", [X, BLOCK_SCALES, zeros], **how)
    q = RNG.integers(0, 100, (4, 6)).astype(kind)
    assert_like_onnxruntime("DequantizeLinear", [q, BLOCK_SCALES, zeros], **how)


@pytest.mark.parametrize("kind", [np.float16])
def test_half_precision_is_quantized_as_in_onnxruntime(kind: Any) -> None:
    x = X.astype(kind)
    assert_like_onnxruntime("QuantizeLinear", [x, SCALE.astype(kind), np.array(100, np.uint8)], opset=19)
    q = np.arange(24).reshape(4, 6).astype(np.uint8)
    assert_like_onnxruntime(
        "DequantizeLinear", [q, SCALE.astype(kind), np.array(100, np.uint8)], opset=19, tolerance=1e-3
    )


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2])
def test_small_integers_saturate_at_their_limits(dtype: Any) -> None:
    limits = ml_dtypes.iinfo(dtype)
    zero = np.array(1, dtype)
    found = in_torch(
        one_node("QuantizeLinear", [X, np.array(1, np.float32), zero], opset=25), [X, np.array(1, np.float32), zero]
    )
    assert found[0].dtype == np.dtype(dtype)
    expected = np.clip(np.rint(X) + 1, int(limits.min), int(limits.max))
    np.testing.assert_array_equal(found[0].astype(np.float32), expected)


def test_the_output_type_can_be_said_without_a_zero_point() -> None:
    model = one_node("QuantizeLinear", [X, SCALE], opset=21, kind=TensorProto.INT16, output_dtype=TensorProto.INT16)
    found = in_torch(model, [X, SCALE])[0]
    assert found.dtype == np.int16
    np.testing.assert_array_equal(found, np.rint(X / SCALE))
    assert in_torch(one_node("QuantizeLinear", [X, SCALE], opset=13), [X, SCALE])[0].dtype == np.uint8


@pytest.mark.parametrize("x", [X, np.abs(X), -np.abs(X), np.zeros((2, 2), np.float32)])
def test_ranges_are_found_as_in_onnxruntime(x: np.ndarray) -> None:
    assert_like_onnxruntime("DynamicQuantizeLinear", [x], opset=11, outputs=3)


@pytest.mark.parametrize(("a_kind", "b_kind"), [(np.uint8, np.uint8), (np.uint8, np.int8)])
def test_integer_products_are_those_of_onnxruntime(a_kind: Any, b_kind: Any) -> None:
    a, b = RNG.integers(0, 255, (3, 5)).astype(a_kind), RNG.integers(0, SEVEN_BITS, (5, 4)).astype(b_kind)
    a_zero, b_zero = np.array(7, a_kind), np.array(3, b_kind)
    assert_like_onnxruntime("MatMulInteger", [a, b], opset=10)
    assert_like_onnxruntime("MatMulInteger", [a, b, a_zero, b_zero], opset=10)
    assert_like_onnxruntime("MatMulInteger", [a, b, a_zero, np.array([1, 2, 3, 4], b_kind)], opset=10)
    scales = [np.array(value, np.float32) for value in (0.02, 0.03, 0.2)]
    inputs = [a, scales[0], a_zero, b, scales[1], b_zero, scales[2], np.array(100, a_kind)]
    assert_like_onnxruntime("QLinearMatMul", inputs, opset=10)


@pytest.mark.parametrize("attributes", [{}, {"pads": [1, 1, 0, 2], "strides": [2, 1]}, {"auto_pad": "SAME_UPPER"}])
@pytest.mark.parametrize("groups", [1, 2])
def test_integer_convolutions_are_those_of_onnxruntime(attributes: dict[str, Any], groups: int) -> None:
    x = RNG.integers(0, 255, (1, 4, 6, 6)).astype(np.uint8)
    weight = RNG.integers(0, 255, (6, 4 // groups, 3, 3)).astype(np.uint8)
    x_zero, weight_zero = np.array(120, np.uint8), np.array(110, np.uint8)
    assert_like_onnxruntime("ConvInteger", [x, weight, x_zero, weight_zero], opset=10, group=groups, **attributes)
    signed = RNG.integers(-SEVEN_BITS, SEVEN_BITS, weight.shape).astype(np.int8)
    bias = RNG.integers(-999, 999, 6).astype(np.int32)
    scales = RNG.uniform(0.01, 0.02, 6).astype(np.float32)
    inputs = [
        *[x, np.array(0.02, np.float32), x_zero, signed, scales, np.zeros(6, np.int8)],
        *[np.array(0.9, np.float32), np.array(128, np.uint8), bias],
    ]
    assert_like_onnxruntime("QLinearConv", inputs, opset=10, group=groups, **attributes)
    assert_like_onnxruntime("QLinearConv", inputs[:8], opset=10, group=groups, **attributes)


def _pair(scale: np.ndarray, zero: np.ndarray, axis: int) -> TorchNet:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"], axis=axis),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"], axis=axis),
    ]
    graph = helper.make_graph(
        nodes,
        "pair",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "c"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(scale, "scale"), numpy_helper.from_array(zero, "zero")],
    )
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    return to_torch(Graph.from_model(model))


@pytest.mark.parametrize("kind", [np.int8, np.uint16, ml_dtypes.int4])
def test_gradients_pass_straight_through_a_pair_within_its_range(kind: Any) -> None:
    scales, zeros = np.array([0.05, 0.1], np.float32), np.array([0, 1])
    net = _pair(scales, zeros.astype(kind), 1)
    lowest, highest = int(ml_dtypes.iinfo(kind).min), int(ml_dtypes.iinfo(kind).max)
    x = torch.tensor([[0.12, 0.42], [1e7, -1e7], [0.07, 0.33]], requires_grad=True)
    y = net(x)
    quantized = np.clip(np.rint(x.detach().numpy() / scales) + zeros, lowest, highest)
    expected = (quantized - zeros).astype(np.float32) * scales
    np.testing.assert_array_equal(y.detach().numpy(), expected)
    y.sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), [[1, 1], [0, 0], [1, 1]], rtol=1e-6)
    # LSQ: round(v) - v inside the range, the limit outside
    ratio = x.detach().numpy() / scales
    outside = np.array([[False] * 2, [True] * 2, [False] * 2])
    slopes = np.where(outside, quantized - zeros, np.rint(ratio) - ratio).sum(0)
    np.testing.assert_allclose(net.get_parameter("scale").grad.numpy(), slopes, rtol=1e-4, atol=1e-4)


def test_gradients_pass_a_pair_that_gradient_checkpointing_cuts() -> None:
    net = _pair(SCALES[:2], np.array([3, 4], np.int8), 1)
    x = torch.from_numpy(X.reshape(-1, 2)).requires_grad_()
    whole = torch.autograd.grad(net(x).square().sum(), x)[0]
    net.checkpoint_segments = 2
    assert torch.equal(torch.autograd.grad(net(x).square().sum(), x)[0], whole)
    assert float(whole.abs().sum()) > 0


def test_values_with_and_without_gradients_are_the_same() -> None:
    net = _pair(SCALES[:2], np.array([3, 4], np.int8), 1)
    x = torch.from_numpy(X.reshape(-1, 2) * 4)
    with torch.no_grad():
        plain = net(x)
    assert torch.equal(plain, net(x.requires_grad_()).detach())
