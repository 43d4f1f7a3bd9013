"""A model that computes in bfloat16 computes in float32 inside; its inputs and outputs keep their types."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from onnxq.graph import Graph
from onnxq.passes.base import PASSES, PassResult
from onnxq.passes.widen_to_float32 import widen_to_float32


@PASSES.register("widen_bfloat16")
def widen_bfloat16(graph: Graph) -> PassResult:
    """bfloat16 inside -> float32, with a Cast behind each input and before each output of the model."""
    return widen_to_float32(graph, np.dtype(ml_dtypes.bfloat16))
