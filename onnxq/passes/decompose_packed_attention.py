"""com.microsoft's Attention, which has the weights of its projection inside, in small operators.

Its weights become those of a MatMul, which targets quantize like any other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxq.graph import Graph
from onnxq.passes.attention_steps import (
    Window,
    attend,
    default_scale,
    head_size,
    merge_heads,
    seen_by_place,
    split_heads,
)
from onnxq.passes.base import PASSES, PassResult
from onnxq.passes.padding_mask import padding_bias
from onnxq.passes.rewriter import Declined
from onnxq.passes.steps import MICROSOFT, Steps, replace_each


@PASSES.register("decompose_packed_attention")
def decompose_packed_attention(graph: Graph) -> PassResult:
    """Attention(x, weights, bias) -> MatMul, Add and Split for query, key and value, then MatMul, Softmax, MatMul.

    Left alone where it turns its heads (`do_rotary`), where a buffer for the cache is written in place, or where its
    cache would hold keys and values of unlike sizes.
    """
    return replace_each(graph, [(MICROSOFT, "Attention")], _rewrite)


def _rewrite(steps: Steps) -> list[Any]:
    attrs = steps.node.attrs
    heads = int(attrs["num_heads"])
    if attrs.get("do_rotary", 0):
        raise Declined("it turns its heads by their places inside")
    if attrs.get("past_present_share_buffer", 0) or steps.input(6) is not None:
        raise Declined("its cache is a buffer that is written in place")
    x, weights, bias = (steps.input(port) for port in range(3))
    if weights is None:
        raise Declined("it has no weights")
    width = (steps.graph.shape(weights) or (None, None))[-1]
    if not isinstance(width, int):
        raise Declined("the size of its weights is not known")
    sizes = [int(size) for size in attrs.get("qkv_hidden_sizes", ())] or [width // 3] * 3
    if min(sizes) <= 0:
        raise Declined("it makes no query, key and value of its input")
    if steps.output(1) is not None and sizes[1] != sizes[2]:
        raise Declined("its cache would hold keys and values of unlike sizes")
    projected = steps.typed(steps.op("MatMul", x, weights, role="projection"), x)
    if bias is not None:
        projected = steps.typed(steps.op("Add", projected, bias, role="projection_bias"), x)
    projected.shape = [*(steps.graph.shape(x) or (None, None))[:2], width]
    parts = steps.split(projected, 2, sizes)
    query, key, value = (split_heads(steps, part, heads) for part in parts)
    queries = steps.size(x, 1)
    past: Any = 0
    keys = queries
    if steps.input(4) is not None:
        past = steps.size(steps.input(4), 3)
        keys = steps.plus(past, keys)
        before = [_half(steps, steps.input(4), index) for index in range(2)]
        key, value = (steps.concat(2, old, new) for old, new in zip(before, (key, value), strict=True))
    present = None
    if steps.output(1) is not None:
        one = [steps.typed(steps.op("Unsqueeze", item, steps.ints(0)), x) for item in (key, value)]
        present = steps.concat(0, *one, role="present")
    bias_of_scores = padding_bias(steps, 3, float(attrs.get("mask_filter_value", -10000.0)), x, keys)
    if steps.input(5) is not None:
        extra = steps.input(5)
        bias_of_scores = extra if bias_of_scores is None else steps.typed(steps.op("Add", bias_of_scores, extra), x)
    size = head_size(steps, parts[0], heads)
    result, _ = attend(
        steps,
        query,
        key,
        value,
        scale=default_scale(attrs.get("scale"), size),
        bias=bias_of_scores,
        allowed=seen_by_place(steps, Window(causal=bool(attrs.get("unidirectional", 0))), queries, keys, past),
    )
    return [merge_heads(steps, result), present]


def _half(steps: Steps, past: Any, index: int) -> Any:
    """The keys or the values of a cache (2, batch, heads, length, size)."""
    chosen = steps.constant(np.asarray(index, np.int64), "part")
    return steps.typed(steps.op("Gather", past, chosen, attrs={"axis": 0}), past)
