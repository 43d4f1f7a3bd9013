"""Matrix products: every form of Gemm, tied and shared weights, products of two computed tensors."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tests.zoo_graphs.case import Case, Feeds, register
from tests.zoo_graphs.net import Net

ROWS, K, N = 4, 24, 16


def vectors(net: Net, *shape: int, count: int = 4) -> Feeds:
    return [{"x": net.normal(*(shape or (ROWS, K)))} for _ in range(count)]


def gemm_form(name: str, bias_shape: tuple[int, ...] | None, **attributes: Any) -> Case:
    """Gemm between two ordinary layers; the bias is large enough that losing it or its factor costs 20 dB."""
    net = Net(name)
    x = net.input("x", [ROWS, K])
    y = net.relu(net.gemm(x, K, K))
    if attributes.get("transA"):
        y = net.node("Transpose", y, perm=[1, 0])
    weight = net.weight(*((N, K) if attributes.get("transB") else (K, N)), fan_in=K)
    inputs = [y, weight]
    if bias_shape is not None:
        inputs.append(net.floats(net.rng.normal(0.5, 1.0, bias_shape)))
    y = net.node("Gemm", *inputs, **attributes)
    net.output(net.gemm(net.relu(y), N, 8))
    return Case(net.model(), vectors(net), min_quantized=3)


for _name, _bias, _attributes in (
    ("gemm_alpha", (N,), {"alpha": 0.25}),
    ("gemm_beta", (N,), {"beta": 2.0}),
    ("gemm_alpha_beta_trans_b", (N,), {"alpha": 0.5, "beta": 3.0, "transB": 1}),
    ("gemm_beta_zero", (N,), {"beta": 0.0}),
    ("gemm_trans_a", (N,), {"transA": 1}),
    ("gemm_trans_a_trans_b", (N,), {"transA": 1, "transB": 1, "alpha": 1.5}),
    ("gemm_without_bias", None, {"transB": 1}),
    ("gemm_bias_scalar", (), {"transB": 1}),
    ("gemm_bias_1", (1,), {"transB": 1, "beta": 0.5}),
    ("gemm_bias_1_n", (1, N), {}),
    ("gemm_bias_m_1", (ROWS, 1), {}),
    ("gemm_bias_m_n", (ROWS, N), {"beta": 0.7}),
):
    register(partial(gemm_form, _name, _bias, **_attributes), _name)


@register
def gemm_computed_bias() -> Case:
    net = Net("gemm_computed_bias")
    x = net.input("x", [ROWS, K])
    y = net.relu(net.gemm(x, K, K))
    net.output(net.node("Gemm", y, net.weight(K, K), net.gemm(x, K, K), alpha=0.5, beta=1.5))
    return Case(net.model(), vectors(net), min_quantized=2, notes="C is computed and has a factor")


@register
def gemm_is_last() -> Case:
    net = Net("gemm_is_last")
    net.output(net.gemm(net.relu(net.gemm(net.input("x", [ROWS, K]), K, N)), N, 8), [ROWS, 8])
    return Case(net.model(), vectors(net), min_quantized=2)


@register
def tied_embedding() -> Case:
    net = Net("tied_embedding")
    tokens = net.input("tokens", [1, 6], np.int64)
    table = net.weight(40, 32, fan_in=1, gain=1.0, name="embedding")
    hidden = net.node("Gather", table, tokens)
    hidden = net.node("Tanh", net.linear(hidden, 32, 32))
    net.output(net.node("MatMul", hidden, net.node("Transpose", table, perm=[1, 0])))
    feeds = [{"tokens": net.rng.integers(0, 40, (1, 6))} for _ in range(6)]
    return Case(net.model(), feeds, min_quantized=1, notes="one table read by Gather and, transposed, by MatMul")


@register
def tied_embedding_through_gemm() -> Case:
    net = Net("tied_embedding_through_gemm")
    tokens = net.input("tokens", [5], np.int64)
    table = net.weight(40, 32, fan_in=1, gain=1.0, name="embedding")
    hidden = net.relu(net.gemm(net.node("Gather", table, tokens), 32, 32))
    net.output(net.node("Gemm", hidden, table, transB=1))
    feeds = [{"tokens": net.rng.integers(0, 40, 5)} for _ in range(6)]
    return Case(net.model(), feeds, min_quantized=2)


@register
def weight_read_from_both_sides() -> Case:
    net = Net("weight_read_from_both_sides")
    weight = net.weight(K, K, name="both")
    y = net.relu(net.node("Gemm", net.input("x", [ROWS, K]), weight))
    net.output(net.node("Gemm", y, weight, transB=1))
    return Case(
        net.model(), vectors(net), min_quantized=2, notes="the channel axis is 1 for one reader and 0 for the other"
    )


@register
def matmul_of_two_computed_tensors() -> Case:
    net = Net("matmul_of_two_computed_tensors")
    x = net.input("x", [2, ROWS, K])
    left, right = net.linear(x, K, N), net.node("Transpose", net.linear(x, K, N), perm=[0, 2, 1])
    net.output(net.node("MatMul", left, right))
    return Case(net.model(), vectors(net, 2, ROWS, K), min_quantized=2)


@register
def matmul_constant_on_the_left() -> Case:
    net = Net("matmul_constant_on_the_left")
    y = net.linear(net.input("x", [ROWS, K]), K, N)
    net.output(net.node("MatMul", net.weight(6, ROWS, gain=1.0), y))
    return Case(net.model(), vectors(net), min_quantized=1)


@register
def matmul_batched_weight() -> Case:
    net = Net("matmul_batched_weight")
    x = net.input("x", [3, ROWS, K])
    y = net.relu(net.node("MatMul", x, net.weight(3, K, N, fan_in=K)))
    net.output(net.linear(y, N, 8))
    return Case(net.model(), vectors(net, 3, ROWS, K), min_quantized=1, notes="the weight has rank 3: experts")


@register
def matmul_vector_weight() -> Case:
    net = Net("matmul_vector_weight")
    y = net.relu(net.linear(net.input("x", [ROWS, K]), K, N))
    net.output(net.node("MatMul", y, net.weight(N, fan_in=N, gain=1.0)))
    return Case(net.model(), vectors(net), min_quantized=1, notes="a weight of rank 1 has no channel axis")


@register
def einsum_stays_float() -> Case:
    net = Net("einsum_stays_float")
    y = net.relu(net.linear(net.input("x", [2, ROWS, K]), K, N))
    y = net.node("Einsum", y, net.weight(N, 8, fan_in=N), equation="bmk,kn->bmn")
    net.output(y, [2, ROWS, 8])
    return Case(net.model(), vectors(net, 2, ROWS, K))


@register
def broadcast_arithmetic() -> Case:
    net = Net("broadcast_arithmetic")
    y = net.gemm(net.input("x", [ROWS, K]), K, N)
    y = net.node("Mul", y, net.floats(net.rng.uniform(0.5, 2.0, N)))
    y = net.node("Sub", y, net.floats([0.25]))
    y = net.node("Div", y, net.floats(1.7))
    y = net.node("Sub", net.floats(1.0), y)
    net.output(net.gemm(y, N, 8))
    return Case(net.model(), vectors(net), min_quantized=2, notes="scalar initializers of rank 0 and 1")
