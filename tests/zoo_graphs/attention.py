"""Transformer blocks: decomposed and fused LayerNorm and GELU, masks of every kind."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import numpy as np

from tests.zoo_graphs.case import Case, register
from tests.zoo_graphs.net import Net, element_type

TOKENS, WIDTH, HEADS = 10, 32, 4

Mask = Literal["none", "constant", "input", "integer input", "where"]


def layer_norm(net: Net, x: str) -> str:
    """LayerNormalization as exporters write it below opset 17."""
    scale, shift = net.floats(net.rng.uniform(0.7, 1.3, WIDTH)), net.floats(net.rng.normal(0, 0.1, WIDTH))
    centered = net.node("Sub", x, _mean(net, x))
    variance = _mean(net, net.node("Pow", centered, net.floats(2.0)))
    deviation = net.node("Sqrt", net.node("Add", variance, net.floats(1e-5)))
    normalized = net.node("Div", centered, deviation)
    return net.node("Add", net.node("Mul", normalized, scale), shift)


def _mean(net: Net, x: str) -> str:
    if net.opset < 18:
        return net.node("ReduceMean", x, axes=[-1])
    return net.node("ReduceMean", x, net.ints(-1))


def fused_layer_norm(net: Net, x: str) -> str:
    scale, shift = net.floats(net.rng.uniform(0.7, 1.3, WIDTH)), net.floats(net.rng.normal(0, 0.1, WIDTH))
    return net.node("LayerNormalization", x, scale, shift, axis=-1)


def gelu(net: Net, x: str) -> str:
    inner = net.node("Erf", net.node("Div", x, net.floats(np.sqrt(2.0))))
    product = net.node("Mul", x, net.node("Add", inner, net.floats(1.0)))
    return net.node("Mul", product, net.floats(0.5))


def heads(net: Net, x: str, perm: list[int]) -> str:
    projected = net.node("Reshape", net.linear(x, WIDTH, WIDTH), net.ints(0, -1, HEADS, WIDTH // HEADS))
    return net.node("Transpose", projected, perm=perm)


def masked(net: Net, scores: str, mask: Mask, low: float) -> str:
    """Hide the future from every token, in one of the ways exporters do it."""
    hidden = np.triu(np.ones((TOKENS, TOKENS), dtype=bool), 1)
    if mask == "constant":
        return net.node("Add", scores, net.floats(np.where(hidden, low, 0.0)[None, None]))
    if mask == "input":
        return net.node("Add", scores, net.input("mask", [1, 1, TOKENS, TOKENS]))
    if mask == "integer input":
        visible = net.node("Cast", net.input("mask", [1, TOKENS], np.int64), to=element_type(net.dtype))
        wide = net.node("Unsqueeze", visible, net.ints(1, 2))
        additive = net.node("Mul", net.node("Sub", net.floats(1.0), wide), net.floats(low))
        return net.node("Add", scores, additive)
    if mask == "where":
        return net.node("Where", net.constant(hidden[None, None]), net.floats(low), scores)
    return scores


def mask_sample(mask: Mask, low: float, dtype: Any, visible: int) -> dict[str, np.ndarray]:
    if mask == "input":
        hidden = np.triu(np.ones((TOKENS, TOKENS), dtype=bool), 1)
        return {"mask": np.where(hidden, low, 0.0).astype(dtype)[None, None]}
    if mask == "integer input":
        return {"mask": (np.arange(TOKENS) < visible).astype(np.int64)[None]}
    return {}


def transformer(
    name: str, mask: Mask, low: float = 0.0, *, opset: int = 17, fused: bool = False, dtype: Any = np.float32
) -> Case:
    net = Net(name, opset=opset, dtype=dtype)
    norm = fused_layer_norm if fused else layer_norm
    x = net.input("x", [1, TOKENS, WIDTH])
    normal = norm(net, x)
    query, value = heads(net, normal, [0, 2, 1, 3]), heads(net, normal, [0, 2, 1, 3])
    key = heads(net, normal, [0, 2, 3, 1])
    scores = net.node("Div", net.node("MatMul", query, key), net.floats(np.sqrt(WIDTH / HEADS)))
    weights = net.node("Softmax", masked(net, scores, mask, low), axis=-1)
    context = net.node("Transpose", net.node("MatMul", weights, value), perm=[0, 2, 1, 3])
    context = net.node("Reshape", context, net.ints(0, -1, WIDTH))
    y = net.node("Add", x, net.linear(context, WIDTH, WIDTH))
    feed_forward = net.linear(gelu(net, net.linear(norm(net, y), WIDTH, 4 * WIDTH)), 4 * WIDTH, WIDTH)
    net.output(net.node("Add", y, feed_forward), [1, TOKENS, WIDTH])
    feeds = [{"x": net.normal(1, TOKENS, WIDTH)} | mask_sample(mask, low, dtype, visible) for visible in (10, 7, 5, 3)]
    notes = f"mask: {mask}, {low}; six constant weights"
    return Case(net.model(), feeds, minimum_db=25.0, min_quantized=6, notes=notes)


MASKS: tuple[tuple[str, Mask, float], ...] = (
    ("transformer_without_mask", "none", 0.0),
    ("transformer_constant_mask_lowest", "constant", -3.4e38),
    ("transformer_constant_mask_infinite", "constant", -np.inf),
    ("transformer_input_mask_lowest", "input", -3.4e38),
    ("transformer_input_mask_infinite", "input", -np.inf),
    ("transformer_integer_mask", "integer input", -3.4e38),
    ("transformer_where_lowest", "where", -3.4e38),
    ("transformer_where_infinite", "where", -np.inf),
)
for _name, _mask, _low in MASKS:
    register(partial(transformer, _name, _mask, _low), _name)

register(partial(transformer, "transformer_layer_normalization", "none", fused=True), "transformer_layer_normalization")
register(partial(transformer, "transformer_opset_21", "constant", -1e9, opset=21, fused=True), "transformer_opset_21")
register(partial(transformer, "transformer_opset_13", "constant", -1e4, opset=13), "transformer_opset_13")
register(partial(transformer, "transformer_fp16", "constant", -65504.0, dtype=np.float16), "transformer_fp16")
