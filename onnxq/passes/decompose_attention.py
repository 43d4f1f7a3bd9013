"""ONNX's Attention in small operators, for targets that have no such operator or would compute all of it in float."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

from onnxq.graph import Graph
from onnxq.passes.attention_steps import (
    Window,
    attend,
    both,
    default_scale,
    head_size,
    merge_heads,
    repeat_heads,
    seen_by_place,
    split_heads,
)
from onnxq.passes.base import PASSES, PassResult
from onnxq.passes.rewriter import Declined
from onnxq.passes.steps import Size, Steps, replace_each

MASKED = 2
"""The attribute `qk_matmul_output_mode`: scores with the mask, minus infinity for what is hidden."""


@PASSES.register("decompose_attention")
def decompose_attention(graph: Graph) -> PassResult:
    """Attention -> MatMul, Softmax, MatMul, with heads split, caches joined and masks computed where there are any.

    Left alone where a number of dimensions, of heads or the size of a head is not known.
    """
    return replace_each(graph, [("", "Attention")], _rewrite)


def _rewrite(steps: Steps) -> list[Any]:
    attrs = steps.node.attrs
    query, key, value = (steps.input(port) for port in range(3))
    packed = steps.rank(query) == 3
    if packed:
        if "q_num_heads" not in attrs or "kv_num_heads" not in attrs:
            raise Declined("its heads are together and their number is not given")
        heads, shared = int(attrs["q_num_heads"]), int(attrs["kv_num_heads"])
        size = head_size(steps, query, heads)
        query = split_heads(steps, query, heads)
        key, value = (split_heads(steps, item, shared) for item in (key, value))
    else:
        size = head_size(steps, query)
        known = [(steps.graph.shape(item) or (None, None))[1] for item in (query, key)]
        if not all(isinstance(count, int) for count in known):
            raise Declined("its number of heads is not known")
        heads, shared = (int(count) for count in known if isinstance(count, int))
    past: Any = 0
    past_key, past_value = steps.input(4), steps.input(5)
    queries = steps.size(steps.input(0), 1 if packed else 2)
    keys = steps.size(steps.input(1), 1 if packed else 2)
    if past_key is not None and past_value is not None:
        past = steps.size(past_key, 2)
        keys = steps.plus(past, keys)
        key = steps.concat(2, past_key, key, role="present_key")
        value = steps.concat(2, past_value, value, role="present_value")
    lengths = steps.input(6)
    first: Any = past
    if lengths is not None:
        lengths = steps.op("Reshape", lengths, steps.ints(-1, 1, 1, 1))
        first = past if past_key is not None else steps.op("Sub", lengths, steps.tensor(queries))
    window = Window(
        bool(attrs.get("is_causal", 0)), int(attrs.get("left_window_size", -1)), int(attrs.get("right_window_size", -1))
    )
    bias, seen = _mask(steps, keys)
    allowed = both(steps, seen_by_place(steps, window, queries, keys, first, lengths), seen)
    precision = attrs.get("softmax_precision")
    result, scores = attend(
        steps,
        query,
        repeat_heads(steps, key, shared, heads // shared),
        repeat_heads(steps, value, shared, heads // shared),
        scale=default_scale(attrs.get("scale"), size),
        softcap=float(attrs.get("softcap", 0.0)),
        bias=bias,
        allowed=allowed,
        may_be_blind=seen is not None or lengths is not None,
        precision=None if precision is None else helper.tensor_dtype_to_np_dtype(int(precision)),
    )
    if packed:
        result = merge_heads(steps, result)
    mode = int(attrs.get("qk_matmul_output_mode", 0))
    shown = (scores.raw, scores.capped, scores.added, scores.probabilities)[mode]
    if steps.output(3) is not None and mode == MASKED and allowed is not None:
        shown = steps.op("Where", scores.allowed, scores.added, steps.number(-np.inf, query), role="shown")
    wanted = [steps.output(port) is not None for port in range(4)]
    return [made if want else None for made, want in zip((result, key, value, shown), wanted, strict=True)]


def _mask(steps: Steps, keys: Size) -> tuple[Any, Any]:
    """The mask as something to add, and as booleans; a mask that hides whole rows is both."""
    mask = steps.input(3)
    if mask is None:
        return None, None
    mask = _padded(steps, mask, keys)
    if steps.dtype(mask) == np.bool_:
        return None, mask
    if steps.graph.is_constant(mask):
        values = np.asarray(steps.graph.values(mask), np.float64)
        hidden = np.isneginf(values)
        if not hidden.any():
            return mask, None
        plain = np.where(hidden, 0, values)
        return (steps.constant(plain.astype(steps.dtype(mask)), "mask") if plain.any() else None), ~hidden
    # What is minus infinity is hidden; all else is added as it is.
    lowest = steps.number(float(np.finfo(steps.dtype(mask)).min), mask)
    return steps.typed(steps.op("Max", mask, lowest, role="mask"), mask), steps.op("GreaterOrEqual", mask, lowest)


def _padded(steps: Steps, mask: Any, keys: Size) -> Any:
    """A mask that is shorter than the keys hides those behind its end; one of a free size is taken to be as long."""
    last = (steps.graph.shape(mask) or (None,))[-1]
    if not isinstance(last, int) or last == keys:
        return mask
    if last == 1:
        raise Declined("its mask has one column for all keys")
    rank = steps.rank(mask)
    missing = steps.op("Reshape", steps.tensor(steps.minus(keys, last)), steps.ints(1))
    pads = steps.op("Concat", steps.ints(*[0] * (2 * rank - 1)), missing, attrs={"axis": 0})
    hidden = False if steps.dtype(mask) == np.bool_ else -np.inf
    return steps.typed(steps.op("Pad", mask, pads, steps.constant(np.asarray(hidden, steps.dtype(mask)))), mask)
