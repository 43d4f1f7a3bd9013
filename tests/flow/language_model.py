"""A small language model: embeddings, two blocks of causal attention and a feed-forward part, logits over the words."""

from __future__ import annotations

from typing import Literal

import numpy as np
import onnx

from tests.zoo_graphs.net import Net

WORDS, WIDTH, HEADS, LONGEST = 320, 64, 4, 16
Head = Literal["apart", "transposed", "gemm"]
"""The last layer: a weight of its own, the embeddings through a Transpose, or the embeddings in a Gemm with transB."""


def language_model(head: Head = "transposed", width: int = WIDTH) -> onnx.ModelProto:
    """Any batch and number of tokens; `logits` for each of them (with head="gemm" one row for each token)."""
    net = Net(f"language_model_{head}")
    ids = net.input("ids", ["batch", "tokens"], np.int64)
    table = net.floats(net.rng.normal(0, 0.5, (WORDS, width)), "embeddings")
    positions = net.floats(net.rng.normal(0, 0.1, (LONGEST, width)), "positions")
    length = net.node("Shape", ids, start=1)
    placed = net.node("Slice", positions, net.ints(0), length, net.ints(0))
    x = net.node("Add", net.node("Gather", table, ids), placed)
    for _ in range(2):
        x = net.node("Add", x, _attention(net, _norm(net, x, width), ids, width))
        wide = net.node("MatMul", _norm(net, x, width), net.weight(width, 2 * width, fan_in=width))
        gate = net.node("Mul", wide, net.node("Sigmoid", wide))
        x = net.node("Add", x, net.node("MatMul", gate, net.weight(2 * width, width, fan_in=2 * width, gain=0.5)))
    last = _norm(net, x, width)
    if head == "apart":
        logits = net.node("MatMul", last, net.weight(width, WORDS, fan_in=width), output="logits")
    elif head == "transposed":
        logits = net.node("MatMul", last, net.node("Transpose", table, perm=[1, 0]), output="logits")
    else:
        rows = net.node("Reshape", last, net.ints(-1, width))
        logits = net.node("Gemm", rows, table, net.bias(WORDS), transB=1, output="logits")
    shape = ["rows", WORDS] if head == "gemm" else ["batch", "tokens", WORDS]
    net.output(logits, shape)
    return net.model()


def sentences(count: int, seed: int = 0) -> list[dict[str, np.ndarray]]:
    """Feeds of different batches and lengths."""
    rng = np.random.default_rng(seed)
    shapes = [(1 + number % 3, int(rng.integers(2, LONGEST))) for number in range(count)]
    return [{"ids": rng.integers(0, WORDS, shape)} for shape in shapes]


def _norm(net: Net, x: str, width: int) -> str:
    return net.node("LayerNormalization", x, net.floats(np.ones(width)), net.floats(np.zeros(width)), axis=-1)


def _attention(net: Net, x: str, ids: str, width: int) -> str:
    """Heads of width / HEADS; a token sees itself and those before it."""
    length = net.node("Shape", ids, start=1)
    parts = []
    for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
        linear = net.node("MatMul", x, net.weight(width, width, fan_in=width, gain=1.0))
        split = net.node("Reshape", linear, net.ints(0, 0, HEADS, width // HEADS))
        parts.append(net.node("Transpose", split, perm=order))
    query, key, value = parts
    scores = net.node("Div", net.node("MatMul", query, key), net.floats(np.sqrt(width // HEADS)))
    square = net.node("Concat", length, length, axis=0)
    ones = net.node("ConstantOfShape", square, value=onnx.numpy_helper.from_array(np.ones(1, np.float32)))
    later = net.node("Trilu", ones, net.constant(np.array(1, np.int64)), upper=1)
    masked = net.node("Sub", scores, net.node("Mul", later, net.floats(1e4)))
    mixed = net.node("MatMul", net.node("Softmax", masked, axis=-1), value)
    joined = net.node("Reshape", net.node("Transpose", mixed, perm=[0, 2, 1, 3]), net.ints(0, 0, width))
    return net.node("MatMul", joined, net.weight(width, width, fan_in=width, gain=0.5))
