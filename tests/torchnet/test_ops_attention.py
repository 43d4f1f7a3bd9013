"""Attention, linear attention and rotary positions against onnxruntime, with their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from onnxq.errors import UnsupportedError
from onnxq.torchnet.values import from_numpy
from tests.torchnet.one_node import assert_gradients, assert_like_onnxruntime, in_torch, net_of, one_node

RNG = np.random.default_rng(31)
TOLERANCE = 1e-5
"""Sums of a few float32 products, in another order."""


def values(*shape: int) -> np.ndarray:
    return RNG.normal(0, 1, shape).astype(np.float32)


Q, K, V = values(2, 4, 3, 8), values(2, 4, 5, 8), values(2, 4, 5, 6)
SHARED_K, SHARED_V = values(2, 2, 5, 8), values(2, 2, 5, 6)
SQUARE = [values(2, 4, 5, 8), K, V]
PAST = [values(2, 4, 2, 8), values(2, 4, 2, 6)]
OPEN = RNG.random((3, 5)) > 0.3
OPEN[:, 0] = True

ATTENTION: list[tuple[str, list[np.ndarray | None], dict[str, Any]]] = [
    ("plain", [Q, K, V], {}),
    ("scaled", [Q, K, V], {"scale": 0.3}),
    ("causal", SQUARE, {"is_causal": 1}),
    ("shared heads", [Q, SHARED_K, SHARED_V], {}),
    ("one head for all", [Q, SHARED_K[:, :1], SHARED_V[:, :1]], {"scale": 0.5}),
    ("numbers as a mask", [Q, K, V, values(3, 5)], {}),
    ("a mask of each batch", [Q, K, V, values(2, 1, 3, 5)], {}),
    ("a mask of truths", [Q, K, V, OPEN], {}),
    ("a mask and causal", [*SQUARE, values(5, 5)], {"is_causal": 1}),
    ("a past", [Q, K, V, None, *PAST], {"outputs": 3}),
    ("a past and causal", [Q, K, V, None, *PAST], {"outputs": 3, "is_causal": 1}),
    ("a past and a mask", [Q, K, V, values(3, 7), *PAST], {"outputs": 3}),
    ("softcap", [Q, K, V, values(3, 5)], {"softcap": 0.7}),
    ("heads side by side", [values(2, 3, 8), values(2, 5, 8), values(2, 5, 12)], {"q_num_heads": 2, "kv_num_heads": 2}),
    (
        "side by side, shared",
        [values(2, 3, 16), values(2, 5, 8), values(2, 5, 8)],
        {"q_num_heads": 4, "kv_num_heads": 2},
    ),
]


@pytest.mark.parametrize(("inputs", "how"), [case[1:] for case in ATTENTION], ids=[case[0] for case in ATTENTION])
def test_attention_is_that_of_onnxruntime(inputs: list[np.ndarray | None], how: dict[str, Any]) -> None:
    assert_like_onnxruntime("Attention", inputs, opset=23, tolerance=TOLERANCE, **how)


@pytest.mark.parametrize("mode", range(4))
def test_the_fourth_output_shows_the_scores_at_each_stage(mode: int) -> None:
    mask = values(3, 5)
    how: dict[str, Any] = {"opset": 24, "outputs": 4, "softcap": 1.5, "qk_matmul_output_mode": mode}
    shown = in_torch(one_node("Attention", [Q, K, V, mask], **how), [Q, K, V, mask])[3]
    raw = np.einsum("bhqd,bhkd->bhqk", Q, K) / np.sqrt(8)
    capped = 1.5 * np.tanh(raw / 1.5)
    exponential = np.exp(capped + mask)
    stages = [raw, capped, capped + mask, exponential / exponential.sum(-1, keepdims=True)]
    np.testing.assert_allclose(shown, stages[mode], rtol=1e-4, atol=1e-5)


def test_a_query_that_may_see_nothing_gives_zeros_and_no_broken_gradients() -> None:
    """Fused or step by step: `softcap` takes the long way."""
    mask = np.ones((3, 5), bool)
    mask[1] = False
    for how in ({}, {"softcap": 9.0}):
        net = net_of(one_node("Attention", [Q, K, V, mask], opset=23, **how))
        query = torch.tensor(Q, requires_grad=True)
        y = net(query, from_numpy(K), from_numpy(V), from_numpy(mask))
        assert not y[:, :, 1].any()
        y.sum().backward()
        assert torch.isfinite(query.grad).all()


def test_an_unknown_stage_of_the_scores_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="qk_matmul_output_mode 7"):
        net_of(one_node("Attention", [Q, K, V], opset=23, outputs=4, qk_matmul_output_mode=7))


ROTARY: list[tuple[str, list[np.ndarray], dict[str, Any]]] = [
    ("halves", [values(2, 3, 4, 8), values(10, 4), values(10, 4), RNG.integers(0, 10, (2, 4))], {}),
    ("pairs", [values(2, 3, 4, 8), values(10, 4), values(10, 4), RNG.integers(0, 10, (2, 4))], {"interleaved": 1}),
    ("no positions", [values(2, 3, 4, 8), values(2, 4, 4), values(2, 4, 4)], {}),
    ("a part", [values(2, 3, 4, 8), values(2, 4, 2), values(2, 4, 2)], {"rotary_embedding_dim": 4, "num_heads": 3}),
    ("side by side", [values(2, 4, 24), values(2, 4, 4), values(2, 4, 4)], {"num_heads": 3}),
]


@pytest.mark.parametrize(("inputs", "how"), [case[1:] for case in ROTARY], ids=[case[0] for case in ROTARY])
def test_rotary_positions_are_those_of_onnxruntime(inputs: list[np.ndarray], how: dict[str, Any]) -> None:
    assert_like_onnxruntime("RotaryEmbedding", inputs, opset=23, **how)


def doubles(*shape: int) -> np.ndarray:
    return RNG.normal(0, 1, shape)


SMALL = [doubles(1, 2, 2, 3), doubles(1, 2, 3, 3), doubles(1, 2, 3, 2)]
HEADS = {"q_num_heads": 2, "kv_num_heads": 1}

DIFFERENTIABLE: list[tuple[str, str, int, list[np.ndarray], dict[str, Any]]] = [
    ("fused", "Attention", 23, SMALL, {}),
    ("with a trained mask", "Attention", 23, [*SMALL, doubles(2, 3)], {}),
    ("step by step", "Attention", 23, [*SMALL, doubles(2, 3)], {"softcap": 2.0}),
    ("windows", "Attention", 25, SMALL, {"left_window_size": 1, "right_window_size": 1}),
    ("rotary", "RotaryEmbedding", 23, [doubles(1, 2, 2, 4), doubles(1, 2, 2), doubles(1, 2, 2)], {}),
    (
        "linear",
        "LinearAttention",
        27,
        [doubles(1, 3, 4), doubles(1, 3, 2), doubles(1, 3, 3), doubles(1, 1, 2, 3), doubles(1, 3, 2), doubles(1, 3, 1)],
        {**HEADS, "update_rule": "gated_delta", "outputs": 2},
    ),
]


@pytest.mark.parametrize(
    ("op", "opset", "inputs", "how"), [case[1:] for case in DIFFERENTIABLE], ids=[case[0] for case in DIFFERENTIABLE]
)
def test_gradients_are_right(op: str, opset: int, inputs: list[np.ndarray], how: dict[str, Any]) -> None:
    assert_gradients(op, inputs, opset=opset, **how)


def test_an_unknown_rule_of_linear_attention_is_refused() -> None:
    inputs = [values(1, 3, 4), values(1, 3, 2), values(1, 3, 3)]
    with pytest.raises(UnsupportedError, match="update_rule 'cubic'; ONNX knows linear, gated"):
        net_of(one_node("LinearAttention", inputs, opset=27, outputs=2, update_rule="cubic", **HEADS))
