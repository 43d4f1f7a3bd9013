"""Norms in small operators, in the form in which they are recognised as one unit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxq.passes.steps import Steps

AXES_AS_INPUT = 18


def rms_norm(steps: Steps, x: Any, scale: Any, axes: Sequence[int], epsilon: float) -> Any:
    """x / sqrt(mean(x^2) + epsilon) * scale; half precision is widened in between, as the operator does it."""
    kind = steps.dtype(x)
    narrow = kind.itemsize < np.dtype(np.float32).itemsize
    wide = steps.typed(steps.cast(x, np.float32), x) if narrow else x
    if narrow:
        wide.dtype = np.dtype(np.float32)
    squared = steps.typed(steps.op("Mul", wide, wide, role="squared"), wide)
    if steps.graph.opset < AXES_AS_INPUT:
        mean = steps.op("ReduceMean", squared, role="mean", attrs={"axes": list(axes), "keepdims": 1})
    else:
        mean = steps.op("ReduceMean", squared, steps.ints(*axes), role="mean", attrs={"keepdims": 1})
    root = steps.op("Sqrt", steps.op("Add", mean, steps.number(epsilon, wide), role="stable"), role="root")
    normal = steps.typed(steps.op("Div", wide, root, role="normal"), wide)
    if narrow:
        normal = steps.cast(normal, kind)
        normal.dtype = kind
    return steps.typed(steps.op("Mul", normal, scale, role="scaled"), x)
