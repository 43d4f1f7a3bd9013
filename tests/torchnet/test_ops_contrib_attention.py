"""Attention of com.microsoft against onnxruntime, with its gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from onnxq.errors import UnsupportedError
from tests.torchnet.one_node import assert_like_onnxruntime, in_torch, net_of, one_node

RNG = np.random.default_rng(40)
HERE = {"domain": "com.microsoft", "opset": 17, "tolerance": 2e-5}


def values(*shape: int) -> np.ndarray:
    return RNG.normal(0, 1, shape).astype(np.float32)


PACKED = [values(2, 3, 8) for _ in "qkv"]
PAST = [values(2, 2, 4, 4) for _ in "kv"]
PADDING = np.array([[1, 1, 0], [1, 1, 1]], np.int32)
ANGLES = [values(10, 8), values(10, 8)]
LAST, TOTAL = np.array([4, 4], np.int32), np.array(5, np.int32)
GROUPS = {"num_heads": 4, "kv_num_heads": 2}
LONG = [values(2, 5, 64), values(2, 5, 32), values(2, 5, 32)]
TOKEN = [values(2, 1, 64), values(2, 1, 32), values(2, 1, 32)]
CACHE = [values(2, 2, 4, 16), values(2, 2, 4, 16)]

CASES: list[tuple[str, str, list[np.ndarray | None], dict[str, Any]]] = [
    ("plain", "MultiHeadAttention", PACKED, {"num_heads": 2}),
    ("bias and causal", "MultiHeadAttention", [*PACKED, values(24)], {"num_heads": 2, "unidirectional": 1}),
    ("padding and scale", "MultiHeadAttention", [*PACKED, None, PADDING], {"num_heads": 2, "scale": 0.3}),
    ("lengths", "MultiHeadAttention", [*PACKED, None, np.array([2, 3], np.int32)], {"num_heads": 2}),
    (
        "fewer queries, causal",
        "MultiHeadAttention",
        [PACKED[0][:, :2], *PACKED[1:]],
        {"num_heads": 2, "unidirectional": 1},
    ),
    ("added", "MultiHeadAttention", [*PACKED, None, None, values(1, 2, 3, 3)], {"num_heads": 2}),
    ("a cache", "MultiHeadAttention", [*PACKED, None, None, None, *PAST], {"num_heads": 2, "outputs": 3}),
    (
        "of an encoder",
        "MultiHeadAttention",
        [PACKED[0], values(2, 2, 4, 4), values(2, 2, 4, 4)],
        {"num_heads": 2},
    ),
    ("weights", "Attention", [values(2, 3, 6), values(6, 24), values(24)], {"num_heads": 2}),
    ("weights, padding", "Attention", [values(2, 3, 6), values(6, 24), values(24), PADDING], {"num_heads": 2}),
    (
        "weights, ends and starts",
        "Attention",
        [values(2, 3, 6), values(6, 24), values(24), np.array([3, 3, 1, 0], np.int32)],
        {"num_heads": 2},
    ),
    (
        "weights of two sizes",
        "Attention",
        [values(2, 3, 6), values(6, 20), values(20)],
        {"num_heads": 2, "qkv_hidden_sizes": [8, 8, 4], "unidirectional": 1},
    ),
    (
        "weights and a cache",
        "Attention",
        [values(2, 3, 6), values(6, 24), values(24), None, values(2, 2, 2, 4, 4)],
        {"num_heads": 2, "outputs": 2},
    ),
    ("a prompt", "GroupQueryAttention", [*LONG, None, None, LAST, TOTAL], GROUPS),
    ("a token", "GroupQueryAttention", [*TOKEN, *CACHE, LAST, TOTAL], {**GROUPS, "outputs": 3}),
    (
        "turned",
        "GroupQueryAttention",
        [*TOKEN, *CACHE, LAST, TOTAL, *ANGLES],
        {**GROUPS, "do_rotary": 1, "outputs": 3},
    ),
    (
        "turned in pairs, a window",
        "GroupQueryAttention",
        [*LONG, None, None, LAST, TOTAL, *ANGLES],
        {**GROUPS, "do_rotary": 1, "rotary_interleaved": 1, "local_window_size": 3},
    ),
    (
        "packed, capped",
        "GroupQueryAttention",
        [np.concatenate(LONG, -1), None, None, None, None, LAST, TOTAL],
        {**GROUPS, "softcap": 2.0},
    ),
    ("smooth", "GroupQueryAttention", [*LONG, None, None, LAST, TOTAL], {**GROUPS, "smooth_softmax": 1}),
    ("every place", "RotaryEmbedding", [values(2, 3, 32), RNG.integers(0, 10, (2, 3)), *ANGLES], {}),
    ("the first place", "RotaryEmbedding", [values(2, 2, 3, 16), np.array([4]), *ANGLES], {"interleaved": 1}),
]


@pytest.mark.parametrize(("op", "inputs", "how"), [case[1:] for case in CASES], ids=[f"{c[1]}: {c[0]}" for c in CASES])
def test_attention_is_that_of_onnxruntime(op: str, inputs: list[np.ndarray | None], how: dict[str, Any]) -> None:
    assert_like_onnxruntime(op, inputs, **HERE, **how)


def test_packed_inputs_are_those_that_are_apart() -> None:
    """onnxruntime has kernels for these forms on GPUs only."""
    how = {"domain": "com.microsoft", "opset": 17, "num_heads": 2}
    apart = in_torch(one_node("MultiHeadAttention", PACKED, **how), PACKED)[0]
    together = np.stack([item.reshape(2, 3, 2, 4) for item in PACKED], 3)
    for inputs in ([together], [PACKED[0], np.ascontiguousarray(together[:, :, :, 1:])]):
        np.testing.assert_allclose(
            in_torch(one_node("MultiHeadAttention", inputs, **how), inputs)[0], apart, rtol=1e-5, atol=1e-6
        )


def test_weights_inside_an_attention_are_trained() -> None:
    inputs = [values(2, 3, 6), values(6, 24), values(24)]
    net = net_of(one_node("Attention", inputs, domain="com.microsoft", opset=17, num_heads=2, constants=[1, 2]))
    net(torch.from_numpy(inputs[0]))[0].square().sum().backward()
    trained = [parameter for parameter in net.parameters() if parameter.grad is not None]
    assert {tuple(parameter.shape) for parameter in trained} == {(6, 24), (24,)}
    assert all(bool(parameter.grad.abs().sum() > 0) for parameter in trained if parameter.grad is not None)


def test_gradients_pass_through_a_quantized_cache() -> None:
    """Rounding to the codes of the cache has the gradient 1, and scales and tables of angles are not trained."""
    cache = [np.zeros((2, 2, 4, 16), np.int8)] * 2
    scales = [np.full(1, 0.05, np.float32)] * 2
    given = [*TOKEN, *cache, LAST, TOTAL]
    inputs = [*given, *ANGLES, None, None, None, *scales]
    how: dict[str, Any] = {
        "k_quant_type": "PER_TENSOR",
        "v_quant_type": "PER_TENSOR",
        "kv_cache_bit_width": 8,
    }
    model = one_node(
        "GroupQueryAttention",
        inputs,
        domain="com.microsoft",
        opset=17,
        constants=[7, 8, 12, 13],
        do_rotary=1,
        **GROUPS,
        **how,
    )
    net = net_of(model)
    tensors = [torch.from_numpy(array).requires_grad_(array.dtype == np.float32) for array in given]
    net(*tensors).square().sum().backward()
    assert all(tensor.grad is not None and bool(tensor.grad.abs().sum() > 0) for tensor in tensors[:3])
    assert not list(net.parameters())


def test_a_cache_of_another_type_is_refused() -> None:
    inputs = [*TOKEN, *CACHE, LAST, TOTAL]
    model = one_node(
        "GroupQueryAttention", inputs, domain="com.microsoft", opset=17, k_quant_type="PER_TENSOR", **GROUPS
    )
    with pytest.raises(UnsupportedError, match="quantized cache"):
        net_of(model)
