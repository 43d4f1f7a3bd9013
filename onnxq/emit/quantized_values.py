"""Constants as the float values of their quantized numbers, for formats and files that store no integers."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from onnxq.emit.uses import uses_of
from onnxq.graph import DeferredValues, Graph
from onnxq.numerics import dequantize, fake_quantize, quantize
from onnxq.types import Placement, QParams, QParamsTable


def replace_by_values(graph: Graph, placement: Placement, qparams: QParamsTable, suffix: str) -> Any:
    """Let the constant's readers read the values of its quantized numbers; returns the new constant.

    They are computed while the file is written, one constant at a time.
    """
    original = graph.tensor(placement.tensor)
    uses = uses_of(graph, placement)
    readers = graph.consumers(original) if uses is None else uses
    parameters, fixed = qparams[placement.tensor], qparams.integer_weights.get(placement.tensor)
    compute = partial(quantized_values, graph, original, parameters, fixed)
    values = DeferredValues(tuple(original.shape), np.dtype(original.dtype), compute)
    constant = graph.add_constant(f"{placement.tensor}_{suffix}", values, scope=graph.home_of(original))
    graph.redirect(original, constant, uses=readers)
    return constant


def quantized_values(graph: Graph, constant: Any, parameters: QParams, fixed: np.ndarray | None) -> np.ndarray:
    """The values of a constant's quantized numbers, in its own type; `fixed` are numbers that a method has chosen."""
    kind = np.dtype(constant.dtype)
    if fixed is not None:
        return dequantize(fixed, parameters).astype(kind)
    return fake_quantize(graph.values(constant).astype(np.float32, copy=False), parameters).astype(kind, copy=False)


def quantized_numbers(graph: Graph, constant: Any, parameters: QParams, fixed: np.ndarray | None) -> np.ndarray:
    """The numbers of a quantized constant as a file stores them; `fixed` are those that a method has chosen."""
    numbers = quantize(graph.values(constant).astype(np.float32, copy=False), parameters) if fixed is None else fixed
    return numbers.astype(parameters.spec.format.onnx_storage)
