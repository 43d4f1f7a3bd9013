"""com.microsoft's GroupQueryAttention, as language models of ONNX Runtime GenAI have it, in small operators.

The sequences of a batch may have several lengths: `seqlens_k` has the place of the last token of each. Sequence b has
past_b = max(seqlens_k[b] + 1 - queries, 0) tokens in the cache, and its new keys stand right behind them.
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
    repeat_heads,
    seen_by_place,
    split_heads,
)
from onnxq.passes.base import PASSES, PassResult
from onnxq.passes.rewriter import Declined
from onnxq.passes.rotary_steps import rotate
from onnxq.passes.steps import MICROSOFT, Size, Steps, replace_each


@PASSES.register("decompose_group_query_attention")
def decompose_group_query_attention(graph: Graph) -> PassResult:
    """GroupQueryAttention -> rotary positions, the cache joined, MatMul, Softmax, MatMul.

    Left alone with a quantized cache, with sinks in its softmax, or where it shows its scores.
    """
    return replace_each(graph, [(MICROSOFT, "GroupQueryAttention")], _rewrite)


def _rewrite(steps: Steps) -> list[Any]:
    attrs = steps.node.attrs
    if any(steps.input(port) is not None for port in (12, 13)) or attrs.get("k_quant_type", "NONE") != "NONE":
        raise Declined("its cache is quantized")
    if steps.input(11) is not None or int(attrs.get("smooth_softmax", 0)) == 1:
        raise Declined("its softmax has a sink")
    if steps.output(3) is not None:
        raise Declined("it shows its scores")
    heads, shared = int(attrs["num_heads"]), int(attrs["kv_num_heads"])
    query, key, value, size = _split(steps, heads, shared)
    queries: Size = steps.size(steps.input(0), 1)
    past = _past(steps, queries)
    if attrs.get("do_rotary", 0):
        tables = [_placed(steps, steps.input(port), past, queries) for port in (7, 8)]
        width = (steps.graph.shape(steps.input(7)) or (None, None))[1]
        if not isinstance(width, int):
            raise Declined("the size of its table of angles is not known")
        interleaved = bool(attrs.get("rotary_interleaved", 0))
        query, key = (rotate(steps, x, tables[0], tables[1], size, 2 * width, interleaved) for x in (query, key))
    keys: Size = queries
    if steps.input(3) is not None:
        stored = steps.size(steps.input(3), 2)
        keys = steps.plus(stored, keys)
        alone = (steps.graph.shape(steps.input(0)) or (None,))[0] == 1
        key, value = (
            _joined(steps, steps.input(port), new, None if alone else past, stored, keys)
            for port, new in ((3, key), (4, value))
        )
    local = int(attrs.get("local_window_size", -1))
    window = Window(causal=True, left=local - 1 if local > 0 else -1)
    result, _ = attend(
        steps,
        query,
        repeat_heads(steps, key, shared, heads // shared),
        repeat_heads(steps, value, shared, heads // shared),
        scale=default_scale(attrs.get("scale"), size),
        softcap=float(attrs.get("softcap", 0.0)),
        bias=steps.input(10),
        allowed=seen_by_place(steps, window, queries, keys, past),
    )
    results = (merge_heads(steps, result, heads * size), key, value)
    return [made if steps.output(port) is not None else None for port, made in enumerate(results)]


def _split(steps: Steps, heads: int, shared: int) -> tuple[Any, Any, Any, int]:
    """Query, key and value with their heads apart, and the size of one."""
    query, key, value = (steps.input(port) for port in range(3))
    if key is None:
        size = head_size(steps, query, heads + 2 * shared)
        query, key, value = steps.split(query, 2, (heads * size, shared * size, shared * size))
    size = head_size(steps, query, heads)
    parts = [split_heads(steps, item, count) for item, count in ((query, heads), (key, shared), (value, shared))]
    return (*parts, size)


def _past(steps: Steps, queries: Size) -> Any:
    """How many tokens each sequence has in the cache, as (batch, 1, 1, 1)."""
    lengths = steps.reshape(steps.cast(steps.input(5), np.int64), -1, 1, 1, 1)
    one, none = (steps.constant(np.asarray(number, np.int64), "step") for number in (1, 0))
    rest = steps.op("Sub", steps.op("Add", lengths, one), steps.tensor(queries))
    return steps.op("Max", rest, none, role="past")


def _counted(steps: Steps, size: Size) -> Any:
    places = steps.counting(size)
    return steps.constant(places, "places") if isinstance(places, np.ndarray) else places


def _placed(steps: Steps, table: Any, past: Any, queries: Size) -> Any:
    """The angles of the new tokens, as (batch, 1, length, half)."""
    if table is None:
        raise Declined("it turns its heads and has no table of angles")
    positions = steps.input(9)
    if positions is None:
        before = steps.reshape(past, -1, 1)
        positions = steps.op("Add", before, _counted(steps, queries), role="positions")
        size = (steps.graph.shape(table) or (None,))[0]
        if isinstance(size, int):  # padded queries of a short prompt may count beyond the table
            positions = steps.op("Min", positions, steps.constant(np.asarray(size - 1, np.int64), "last"))
    angles = steps.typed(steps.op("Gather", table, positions, role="angles", attrs={"axis": 0}), table)
    return steps.typed(steps.op("Unsqueeze", angles, steps.ints(1)), table)


def _joined(steps: Steps, before: Any, new: Any, past: Any, stored: Size, keys: Size) -> Any:
    """The cache with the new tokens behind those of each sequence; `past` None where all have the same length."""
    joined = steps.concat(2, before, new, role="present")
    if past is None:
        return joined
    # What stands behind a shorter sequence's own part of the cache is passed over.
    places = steps.reshape(_counted(steps, keys), 1, 1, -1, 1)
    stored = steps.tensor(stored)
    beyond = steps.op("Add", places, steps.op("Sub", stored, past))
    last = steps.op("Sub", steps.tensor(keys), steps.constant(np.asarray(1, np.int64), "step"))
    chosen = steps.op("Where", steps.op("Less", places, past), places, steps.op("Min", beyond, last))
    spread = steps.op("Expand", chosen, steps.op("Shape", joined), role="places")
    return steps.typed(steps.op("GatherElements", joined, spread, role="present", attrs={"axis": 2}), new)
