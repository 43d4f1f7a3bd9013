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
from onnxq.passes.cache_codes import CacheCodes
from onnxq.passes.norm_steps import rms_norm
from onnxq.passes.rewriter import Declined
from onnxq.passes.rotary_steps import rotate
from onnxq.passes.steps import MICROSOFT, Size, Steps, replace_each

BEFORE_SOFTMAX = 1
"""The attribute `qk_output`: which scores the fourth output shows, 0 for none."""


@PASSES.register("decompose_group_query_attention")
def decompose_group_query_attention(graph: Graph) -> PassResult:
    """GroupQueryAttention -> norms of heads, rotary positions, the cache joined, MatMul, Softmax, MatMul.

    A cache in 8 or 4 bits is rounded as the operator does it. Left alone where the cache is a window that forgets, and
    where it holds float8.
    """
    return replace_each(graph, [(MICROSOFT, "GroupQueryAttention")], _rewrite)


def _rewrite(steps: Steps) -> list[Any]:
    attrs = steps.node.attrs
    if attrs.get("sliding_window_cache", 0):
        raise Declined("its cache holds a window and forgets what is older")
    heads, shared = int(attrs["num_heads"]), int(attrs["kv_num_heads"])
    query, key, value, size = _split(steps, heads, shared)
    if steps.input(14) is not None and steps.input(15) is not None:
        epsilon = float(attrs.get("qk_norm_epsilon", 1e-6))
        query, key = (rms_norm(steps, x, steps.input(port), [3], epsilon) for x, port in ((query, 14), (key, 15)))
    queries: Size = steps.size(steps.input(0), 1)
    last = steps.reshape(steps.cast(steps.input(5), np.int64), -1, 1, 1, 1)
    total = steps.op("Add", last, steps.constant(np.asarray(1, np.int64), "step"), role="total")
    past = steps.op(
        "Max",
        steps.op("Sub", total, steps.tensor(queries)),
        steps.constant(np.asarray(0, np.int64), "none"),
        role="past",
    )
    if attrs.get("do_rotary", 0):
        tables = [_placed(steps, steps.input(port), past, queries) for port in (7, 8)]
        width = (steps.graph.shape(steps.input(7)) or (None, None))[1]
        if not isinstance(width, int):
            raise Declined("the size of its table of angles is not known")
        interleaved = bool(attrs.get("rotary_interleaved", 0))
        query, key = (rotate(steps, x, tables[0], tables[1], size, 2 * width, interleaved) for x in (query, key))
    keys: Size = queries
    presents = [key, value]
    if steps.input(3) is not None:
        stored = steps.size(steps.input(3), 2)
        keys = steps.plus(stored, keys)
        alone = (steps.graph.shape(steps.input(0)) or (None,))[0] == 1
        held = None if alone else past
        (key, presents[0]), (value, presents[1]) = (
            _cached(steps, index, new, (shared, size), held, stored, keys) for index, new in enumerate((key, value))
        )
    causal, local = bool(attrs.get("causal", 1)), int(attrs.get("local_window_size", -1))
    window = Window(causal=causal, left=local - 1 if local > 0 else -1)
    result, scores = attend(
        steps,
        query,
        repeat_heads(steps, key, shared, heads // shared),
        repeat_heads(steps, value, shared, heads // shared),
        scale=default_scale(attrs.get("scale"), size),
        softcap=float(attrs.get("softcap", 0.0)),
        bias=steps.input(10),
        allowed=seen_by_place(steps, window, queries, keys, past, None if causal else total),
        sink=_sink(steps, heads),
    )
    shown = scores.probabilities
    if int(attrs.get("qk_output", 0)) == BEFORE_SOFTMAX:  # what a query does not see is shown as 0
        shown = steps.op("Where", scores.allowed, scores.added, steps.number(0.0, query), role="shown")
    results = (merge_heads(steps, result, heads * size), *presents, shown)
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


def _sink(steps: Steps, heads: int) -> Any:
    """The score of a key without a value that each head has (1, heads, 1, 1), None if it has none."""
    if steps.input(11) is not None:
        return steps.reshape(steps.input(11), 1, heads, 1, 1)
    if int(steps.node.attrs.get("smooth_softmax", 0)) == 1:
        return steps.constant(np.zeros((1, heads, 1, 1), steps.dtype(steps.input(0))), "sink")
    return None


def _counted(steps: Steps, size: Size) -> Any:
    places = steps.counting(size)
    return steps.constant(places, "places") if isinstance(places, np.ndarray) else places


def _placed(steps: Steps, table: Any, past: Any, queries: Size) -> Any:
    """The angles of the new tokens, as (batch, 1, length, half)."""
    if table is None:
        raise Declined("it turns its heads and has no table of angles")
    given = steps.input(9)
    if given is None:
        before = steps.reshape(past, -1, 1)
        positions = steps.op("Add", before, _counted(steps, queries), role="positions")
        size = (steps.graph.shape(table) or (None,))[0]
        if isinstance(size, int):  # padded queries of a short prompt may count beyond the table
            positions = steps.op("Min", positions, steps.constant(np.asarray(size - 1, np.int64), "last"))
    else:  # of a first prompt the operator reads the first position alone, and counts on from there
        first = steps.slice(steps.slice(given, 0, 0, 1), 1, 0, 1)
        counted = steps.op("Add", first, _counted(steps, queries), role="counted")
        total = steps.cast(steps.input(6), np.int64)
        is_first = steps.op("Equal", total, steps.tensor(queries))
        positions = steps.op("Where", is_first, counted, given, role="positions")
    angles = steps.typed(steps.op("Gather", table, positions, role="angles", attrs={"axis": 0}), table)
    return steps.typed(steps.op("Unsqueeze", angles, steps.ints(1)), table)


def _cached(
    steps: Steps, index: int, new: Any, heads: tuple[int, int], past: Any, stored: Size, keys: Size
) -> tuple[Any, Any]:
    """Keys (`index` 0) or values (1) behind those of the cache, and what the cache holds then."""
    before = steps.input(3 + index)
    codes = CacheCodes.of(steps, index, before, heads)
    if codes is None:
        joined = _joined(steps, before, new, past, stored, keys)
        return joined, joined
    joined = _joined(steps, codes.unpacked(before), codes.rounded(new), past, stored, keys)
    return codes.values(joined), codes.packed(joined)


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
