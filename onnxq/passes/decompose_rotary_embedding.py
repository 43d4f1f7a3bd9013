"""RotaryEmbedding, of ONNX and of com.microsoft, in small operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxq.graph import Graph
from onnxq.passes.attention_steps import head_size, merge_heads, split_heads
from onnxq.passes.base import PASSES, PassResult
from onnxq.passes.rewriter import Declined
from onnxq.passes.rotary_steps import rotate
from onnxq.passes.steps import MICROSOFT, Steps, replace_each


@PASSES.register("decompose_rotary_embedding")
def decompose_rotary_embedding(graph: Graph) -> PassResult:
    """RotaryEmbedding -> Mul, Sub, Add and Concat, with its tables looked up where it has positions."""
    return replace_each(graph, [("", "RotaryEmbedding"), (MICROSOFT, "RotaryEmbedding")], _rewrite)


def _rewrite(steps: Steps) -> list[Any]:
    attrs, custom = steps.node.attrs, steps.node.domain == MICROSOFT
    if attrs.get("is_packed_batching", 0) or attrs.get("scale", 1.0) != 1.0:
        raise Declined("its batches are packed, or it scales its positions")
    x = steps.input(0)
    cosine, sine = (steps.input(2), steps.input(3)) if custom else (steps.input(1), steps.input(2))
    positions = steps.input(1) if custom else steps.input(3)
    turned = int(attrs.get("rotary_embedding_dim", 0))
    packed = steps.rank(x) == 3
    heads = int(attrs.get("num_heads", 0))
    if packed and not heads:
        half = (steps.graph.shape(cosine) or (None,))[-1]
        if not custom or turned or not isinstance(half, int):
            raise Declined("its heads are together and their number is not given")
        heads = head_size(steps, x) // (2 * half)
    size = head_size(steps, x, heads if packed else None)
    split = x
    if packed:
        split = split_heads(steps, x, heads)
    tables = [_placed(steps, table, positions, x, packed) for table in (cosine, sine)]
    result = rotate(steps, split, tables[0], tables[1], size, turned or size, bool(attrs.get("interleaved", 0)))
    return [merge_heads(steps, result) if packed else result]


def _placed(steps: Steps, table: Any, positions: Any, x: Any, packed: bool) -> Any:
    """The rows of a table that belong to the places, as (batch or 1, 1, length, half)."""
    if positions is not None:
        rank = steps.rank(positions)
        if rank == 1:  # the place of the first, of com.microsoft
            counted = steps.counting(steps.size(x, 1 if packed else 2))
            counted = steps.constant(counted, "places") if isinstance(counted, np.ndarray) else counted
            positions = steps.op("Unsqueeze", steps.op("Add", positions, counted), steps.ints(0))
        table = steps.typed(steps.op("Gather", table, positions, role="angles", attrs={"axis": 0}), table)
    return steps.typed(steps.op("Unsqueeze", table, steps.ints(1)), table)
