"""Constants as the float values of their quantized numbers, for formats and files that store no integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxq.emit.uses import uses_of
from onnxq.graph import DeferredValues, Graph
from onnxq.numerics import dequantize, fake_quantize
from onnxq.types import Placement, QParamsTable


def replace_by_values(graph: Graph, placement: Placement, qparams: QParamsTable, suffix: str) -> Any:
    """Let the constant's readers read the values of its quantized numbers; returns the new constant.

    They are computed while the file is written, one constant at a time.
    """
    original = graph.tensor(placement.tensor)
    uses = uses_of(graph, placement)
    parameters = qparams[placement.tensor]
    fixed = qparams.integer_weights.get(placement.tensor)
    kind = np.dtype(original.dtype)

    def compute() -> np.ndarray:
        if fixed is not None:
            return dequantize(fixed, parameters).astype(kind)
        return fake_quantize(graph.values(original).astype(np.float32), parameters).astype(kind)

    readers = graph.consumers(original) if uses is None else uses
    values = DeferredValues(tuple(original.shape), kind, compute)
    constant = graph.add_constant(f"{placement.tensor}_{suffix}", values, scope=graph.home_of(original))
    graph.redirect(original, constant, uses=readers)
    return constant
