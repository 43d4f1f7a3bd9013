"""Scales as the file will store them: a float16 model has float16 scales."""

from __future__ import annotations

import numpy as np

from onnxq.errors import SpecError
from onnxq.graph import Graph
from onnxq.numerics import with_float16_scale
from onnxq.types import QParams


def fitted(graph: Graph, tensor: str, qparams: QParams) -> QParams:
    """The parameters with scales that the tensor's own float type can hold."""
    if graph.dtype(tensor) != np.float16:
        return qparams
    try:
        return with_float16_scale(qparams)
    except SpecError as error:
        raise SpecError(f"tensor '{tensor}': {error}") from error
