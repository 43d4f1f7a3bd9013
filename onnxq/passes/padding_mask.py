"""The padding masks of com.microsoft's attention as something to add to the scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxq.passes.rewriter import Declined
from onnxq.passes.steps import Size, Steps


def padding_bias(steps: Steps, port: int, filled: float, query: Any, keys: Size) -> Any:
    """0 where a key is seen, `filled` where it is not, to be broadcast over (batch, heads, queries, keys).

    A mask is 1 and 0 for (batch, keys) or (batch, queries, keys), or a list: of how many keys each of the batch has,
    of those and of the first ones, or of those and of sums that only kernels without padding need.
    """
    mask = steps.input(port)
    if mask is None:
        return None
    rank = steps.rank(mask)
    if rank == 1:
        condition = _between(steps, mask, keys)
    elif rank in (2, 3):
        axes = (1, 2) if rank == 2 else (1,)
        mask = steps.typed(steps.op("Unsqueeze", mask, steps.ints(*axes)), mask)
        condition = mask if steps.dtype(mask) == np.bool_ else steps.cast(mask, np.bool_)
    else:
        raise Declined("its mask is a part of a larger one")
    return steps.typed(
        steps.op("Where", condition, steps.number(0.0, query), steps.number(filled, query), role="mask"), query
    )


def _between(steps: Steps, ends: Any, keys: Size) -> Any:
    """Which keys a list lets be seen, as (batch, 1, 1, keys)."""
    batch, entries = steps.size(steps.input(0), 0), steps.size(ends, 0)
    starts: Any = None
    if isinstance(batch, int) and isinstance(entries, int) and entries in (2 * batch, 3 * batch + 2):
        starts = steps.slice(ends, 0, batch, entries) if entries == 2 * batch else None
        ends = steps.slice(ends, 0, 0, batch)
    elif entries is not batch and entries != batch:
        raise Declined("its mask is a list whose length does not say what it lists")
    counted = steps.counting(keys)
    places = steps.constant(counted, "places") if isinstance(counted, np.ndarray) else counted
    condition = steps.op("Less", places, _of_each(steps, ends))
    return (
        condition
        if starts is None
        else steps.op("And", condition, steps.op("GreaterOrEqual", places, _of_each(steps, starts)))
    )


def _of_each(steps: Steps, numbers: Any) -> Any:
    return steps.reshape(steps.cast(numbers, np.int64), -1, 1, 1, 1)
