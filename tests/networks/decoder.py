"""A decoder as exporters write it for opset 24: norms, rotary positions, attention with a cache and Swish as nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WORDS, WIDTH, HEADS, SHARED, LONGEST = 48, 32, 4, 2, 32
HEAD = WIDTH // HEADS
FREE = ["batch", "words"]


def decoder(layers: int = 12) -> onnx.ModelProto:
    """Any batch, number of new tokens and length of the cache; grouped heads, `present` joined from `past`."""
    rng = np.random.default_rng(24)
    angles = np.outer(np.arange(LONGEST), 1 / 100 ** (np.arange(0, HEAD, 2) / HEAD))
    stored = {
        "embedding": rng.normal(size=(WORDS, WIDTH)),
        "cos": np.cos(angles),
        "sin": np.sin(angles),
        "head": rng.normal(0, WIDTH**-0.5, (WIDTH, WORDS)),
        "gain_last": np.ones(WIDTH),
    }
    nodes: list[onnx.NodeProto] = []
    value = helper.make_tensor_value_info
    inputs = [value("tokens", TensorProto.INT64, FREE), value("positions", TensorProto.INT64, FREE)]
    outputs = [value("logits", TensorProto.FLOAT, [*FREE, WORDS])]

    def node(op: str, made: str, *read: str, more: tuple[str, ...] = (), **attributes: Any) -> str:
        nodes.append(helper.make_node(op, list(read), [made, *more], name=f"{made}_node", **attributes))
        return made

    def linear(x: str, name: str, rows: int, columns: int) -> str:
        stored[f"{name}.weight"] = rng.normal(0, rows**-0.5, (rows, columns))
        return node("MatMul", name, x, f"{name}.weight")

    def norm(x: str, name: str) -> str:
        stored[f"{name}.gain"] = 1 + 0.1 * rng.normal(size=WIDTH)
        return node("RMSNormalization", name, x, f"{name}.gain", axis=-1, epsilon=1e-5)

    x = node("Gather", "words", "embedding", "tokens")
    for layer in range(layers):
        at = f"layers.{layer}"
        h = norm(x, f"{at}.before")
        q, k, v = (
            linear(h, f"{at}.{part}", WIDTH, count * HEAD)
            for part, count in (("q", HEADS), ("k", SHARED), ("v", SHARED))
        )
        q, k = (
            node("RotaryEmbedding", f"{item}.turned", item, "cos", "sin", "positions", num_heads=count)
            for item, count in ((q, HEADS), (k, SHARED))
        )
        past = [f"past.{layer}.{part}" for part in ("key", "value")]
        present = tuple(f"present.{layer}.{part}" for part in ("key", "value"))
        inputs += [value(name, TensorProto.FLOAT, ["batch", SHARED, "stored", HEAD]) for name in past]
        outputs += [value(name, TensorProto.FLOAT, ["batch", SHARED, "all", HEAD]) for name in present]
        attended = node(
            "Attention",
            f"{at}.attention",
            *(q, k, v, "", *past),
            more=present,
            is_causal=1,
            q_num_heads=HEADS,
            kv_num_heads=SHARED,
        )
        x = node("Add", f"{at}.sum", x, linear(attended, f"{at}.o", WIDTH, WIDTH))
        h = norm(x, f"{at}.behind")
        gate = node("Swish", f"{at}.swish", linear(h, f"{at}.gate", WIDTH, 2 * WIDTH))
        product = node("Mul", f"{at}.product", gate, linear(h, f"{at}.up", WIDTH, 2 * WIDTH))
        x = node("Add", f"{at}.out", x, linear(product, f"{at}.down", 2 * WIDTH, WIDTH))
    node("RMSNormalization", "last", x, "gain_last")
    node("MatMul", "logits", "last", "head")
    tensors = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in stored.items()]
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)


def turns(count: int, layers: int = 12, seed: int = 0) -> list[dict[str, np.ndarray]]:
    """Prompts without a cache and single tokens behind one, in turns."""
    rng = np.random.default_rng(seed)
    feeds = []
    for number in range(count):
        words, stored = (6, 0) if number % 2 == 0 else (1, 3 + number % 5)
        feed = {"tokens": rng.integers(0, WORDS, (1, words)), "positions": stored + np.arange(words)[None]}
        for layer in range(layers):
            for part in ("key", "value"):
                feed[f"past.{layer}.{part}"] = rng.normal(size=(1, SHARED, stored, HEAD)).astype(np.float32)
        feeds.append(feed)
    return feeds
