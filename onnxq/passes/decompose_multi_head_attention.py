"""com.microsoft's MultiHeadAttention in small operators: attention with caches, padding masks and biases."""

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
from onnxq.passes.steps import MICROSOFT, Size, Steps, replace_each


@PASSES.register("decompose_multi_head_attention")
def decompose_multi_head_attention(graph: Graph) -> PassResult:
    """MultiHeadAttention -> MatMul, Softmax, MatMul, with heads split and caches joined.

    Left alone where heads are packed by batches, where a buffer for the cache is written in place, or for beams.
    """
    return replace_each(graph, [(MICROSOFT, "MultiHeadAttention")], _rewrite)


def _rewrite(steps: Steps) -> list[Any]:
    attrs = steps.node.attrs
    heads = int(attrs["num_heads"])
    if steps.input(8) is not None or steps.input(9) is not None:
        raise Declined("its cache is a buffer that is written in place")
    query, key, value = _projected(steps, heads)
    past_key, past_value = steps.input(6), steps.input(7)
    past: Any = 0
    queries = steps.size(query, 2)
    keys = new = steps.size(key, 2)
    size = head_size(steps, query)
    if past_key is not None:
        past = steps.size(past_key, 2)
        keys = steps.plus(past, keys)
        key = steps.concat(2, past_key, key, role="present_key")
        value = steps.concat(2, past_value, value, role="present_value")
    causal = bool(attrs.get("unidirectional", 0))
    bias = padding_bias(steps, 4, float(attrs.get("mask_filter_value", -10000.0)), query, keys)
    if steps.input(5) is not None:
        bias = steps.input(5) if bias is None else steps.typed(steps.op("Add", bias, steps.input(5)), query)
    result, scores = attend(
        steps,
        query,
        key,
        value,
        scale=default_scale(attrs.get("scale"), size),
        bias=bias,
        allowed=_up_to_own(steps, queries, new, keys, past) if causal else None,
    )
    results = (merge_heads(steps, result), key, value, scores.biased)
    return [made if steps.output(port) is not None else None for port, made in enumerate(results)]


def _up_to_own(steps: Steps, queries: Size, new: Size, keys: Size, past: Any) -> Any:
    """Keys up to the query's own place; the last query sees all, also where there are more new keys than queries."""
    if queries == 1:
        return None
    allowed = seen_by_place(steps, Window(causal=True), queries, keys, past)
    if isinstance(allowed, np.ndarray):
        allowed[-1] = True
    elif queries is not new:
        counted = steps.counting(queries)
        places = steps.constant(counted, "places") if isinstance(counted, np.ndarray) else counted
        last = steps.op("Equal", steps.reshape(places, -1, 1), steps.tensor(steps.minus(queries, 1)))
        allowed = steps.op("Or", allowed, last)
    return allowed


def _projected(steps: Steps, heads: int) -> tuple[Any, Any, Any]:
    """Query, key and value with their heads apart, the bias added."""
    query, key, value = steps.input(0), steps.input(1), steps.input(2)
    bias = steps.input(3)
    rank = steps.rank(query)
    if rank == 5:  # (batch, length, heads, 3, size)
        if bias is not None:
            raise Declined("it has a bias and its query, key and value are packed")
        return tuple(_unpacked(steps, query, index) for index in range(3))
    if rank != 3 or key is None:
        raise Declined(f"its query has {rank} dimensions")
    biases = _biases(steps, query, value, bias, heads)
    query = split_heads(steps, _added(steps, query, biases[0]), heads)
    if steps.rank(key) == 5:  # (batch, length, heads, 2, size)
        if bias is not None:
            raise Declined("it has a bias and its key and value are packed")
        return query, _unpacked(steps, key, 0), _unpacked(steps, key, 1)
    if value is None:
        raise Declined("it has no value")
    if steps.rank(key) == 4:  # (batch, heads, length, size): of an encoder, already split
        return query, key, value
    key = split_heads(steps, _added(steps, key, biases[1]), heads)
    return query, key, split_heads(steps, _added(steps, value, biases[2]), heads)


def _unpacked(steps: Steps, packed: Any, index: int) -> Any:
    chosen = steps.constant(np.asarray(index, np.int64), "part")
    one = steps.typed(steps.op("Gather", packed, chosen, attrs={"axis": 3}), packed)
    one.shape = None if packed.shape is None else [*packed.shape[:3], packed.shape[4]]
    made = steps.transpose(one, 0, 2, 1, 3)
    made.shape = None if one.shape is None else [one.shape[i] for i in (0, 2, 1, 3)]
    return made


def _biases(steps: Steps, query: Any, value: Any, bias: Any, heads: int) -> list[Any]:
    """The bias of query, key and value, one behind the other in the file."""
    if bias is None:
        return [None, None, None]
    width = head_size(steps, query, 1)
    total = (steps.graph.shape(bias) or (None,))[0]
    if not isinstance(total, int):
        raise Declined(f"the size of its bias '{bias.name}' is not known")
    sizes = (width, width, total - 2 * width)
    if not steps.graph.is_constant(bias):
        return steps.split(bias, 0, sizes)
    values = np.asarray(steps.graph.values(bias))
    parts = np.split(values, np.cumsum(sizes)[:2])
    return [steps.constant(part, f"bias_{name}") for part, name in zip(parts, "qkv", strict=True)]


def _added(steps: Steps, tensor: Any, bias: Any) -> Any:
    if bias is None:
        return tensor
    made = steps.typed(steps.op("Add", tensor, bias, role="biased"), tensor)
    made.shape = tensor.shape
    return made
