"""Scales of float8 as tpu-mlir has them, which are not all for the table to choose.

F8E5M2 has the range of float16, and tpu-mlir computes in it without scales: they are 1. For weights in F8E4M3 it takes
the largest value of a channel (of a matrix) over 448. A smaller scale clips the weight that is written, so tpu-mlir
arrives at it; a larger one it would not know.
"""

from __future__ import annotations

import numpy as np

from onnxq.graph import Graph
from onnxq.numerics import float_max
from onnxq.ptq.weights.cells import cell_ranges
from onnxq.refine import REFINEMENTS, Refined
from onnxq.targets.sophgo.float8 import UNSCALED, is_float8
from onnxq.types import Backend, QParams, QParamsTable, QuantPlan

NAME = "sophgo_float8_scales"


@REFINEMENTS.register(NAME)
def float8_scales(graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend) -> Refined:
    """Give float8 tensors the scales that tpu-mlir computes with."""
    notes = []
    for placement in plan:
        name, held = placement.tensor, qparams[placement.tensor]
        if not is_float8(held.spec):
            continue
        if held.spec.dtype == UNSCALED:
            scale = np.ones_like(held.scale)
        elif placement.role == "weight" and graph.is_constant(name):
            scale = np.minimum(held.scale, _of_largest(graph.values(name), held))
        else:
            continue
        changed = int((scale != held.scale).sum())
        if changed:
            qparams.change(name, QParams(held.spec, scale, held.zero_point), NAME)
        if changed and held.spec.dtype != UNSCALED:
            notes.append(
                f"weight '{name}': {changed} of {scale.size} scales lowered to that of the largest value, which "
                "tpu-mlir takes in float8"
            )
    return Refined(qparams, tuple(notes))


def _of_largest(values: np.ndarray, held: QParams) -> np.ndarray:
    """The scale of the largest value of each channel; that of a channel of zeros may be any."""
    low, high = cell_ranges(values.astype(np.float32), held.spec.granularity)
    scale = np.maximum(-low, high).astype(np.float64) / float_max(held.spec.dtype)
    # The scales of calibration are these too, but for the last bit.
    found = np.where(scale > 0, scale, np.inf).reshape(held.scale.shape)
    return np.where(held.scale <= found * (1 + 1e-6), held.scale, found).astype(held.scale.dtype)
