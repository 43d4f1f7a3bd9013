"""The padding masks of com.microsoft's attention as something to add to the scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxq.passes.rewriter import Declined
from onnxq.passes.steps import Steps


def padding_bias(steps: Steps, port: int, filled: float, query: Any) -> Any:
    """0 where the mask is 1, `filled` where it is 0: (batch, keys), (batch, queries, keys), or with heads."""
    mask = steps.input(port)
    if mask is None:
        return None
    rank = steps.rank(mask)
    if rank not in (2, 3, 4):
        raise Declined("its mask is a list of lengths")
    if rank < 4:
        axes = (1, 2) if rank == 2 else (1,)
        mask = steps.typed(steps.op("Unsqueeze", mask, steps.ints(*axes)), mask)
    condition = mask if steps.dtype(mask) == np.bool_ else steps.cast(mask, np.bool_)
    return steps.typed(
        steps.op("Where", condition, steps.number(0.0, query), steps.number(filled, query), role="mask"), query
    )
