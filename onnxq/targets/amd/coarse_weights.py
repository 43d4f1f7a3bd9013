"""Weights that a limited position leaves hardly any number for: nothing is changed, but the user has to know."""

from __future__ import annotations

import numpy as np

from onnxq.graph import Graph
from onnxq.refine import REFINEMENTS, Refined
from onnxq.types import Backend, QParamsTable, QuantPlan

FEWEST_STEPS = 8
"""A weight whose largest value is fewer steps than this away from zero has less than four bits."""


@REFINEMENTS.register("coarse_weights")
def coarse_weights(graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend) -> Refined:
    """Warn about weights that are much smaller than the smallest scale of the target can represent."""
    warnings = []
    for placement in plan:
        if placement.role != "weight" or not graph.is_constant(placement.tensor) or not placement.spec.evenly_spaced:
            continue
        largest = float(np.abs(graph.values(placement.tensor)).max(initial=0.0))
        steps = largest / float(qparams[placement.tensor].scale.min())
        if 0 < steps < min(FEWEST_STEPS, placement.spec.qmax / 2):
            readers = " ".join(dict.fromkeys(f"--skip {edge.node}" for edge in placement.edges or ()))
            warnings.append(
                f"weight '{placement.tensor}': its largest value, {largest:.3g}, is only {steps:.1f} steps of the "
                f"smallest scale that {backend.name} has for it, so most of it becomes zero; leave its node float "
                f"({readers or 'with --skip'}), or scale the weight in the float model"
            )
    return Refined(qparams, warnings=tuple(warnings))
