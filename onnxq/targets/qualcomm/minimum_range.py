"""Activations that hardly vary get a range of a least width, where the target enforces one (`Limits.minimum_range`).

The upper end moves, as SNPE moves it, so that zero stays representable. Biases follow their inputs.
"""

from __future__ import annotations

import numpy as np

from onnxq.errors import SpecError
from onnxq.graph import Graph
from onnxq.numerics import derived_bias_scale, qparams_from_range
from onnxq.refine import REFINEMENTS, Refined
from onnxq.types import Backend, QParams, QParamsTable, QuantPlan
from onnxq.types.note import Note


@REFINEMENTS.register("minimum_range")
def minimum_range(graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend) -> Refined:
    """Ranges of activations are at least as wide as the target makes them anyway."""
    least = backend.limits.minimum_range
    if least is None:
        raise SpecError(f"backend '{backend.name}' asks for minimum_range, but its limits name no minimum_range")
    return widen_ranges(graph, plan, qparams, least)


def widen_ranges(graph: Graph, plan: QuantPlan, qparams: QParamsTable, least: float) -> Refined:
    """New parameters for activations whose range is narrower than `least`, and for the biases that derive from them."""
    result = qparams.copy()
    notes = []
    for placement in plan:
        held = qparams[placement.tensor]
        if placement.role == "bias" or graph.is_constant(placement.tensor) or not held.spec.evenly_spaced:
            continue
        scale = float(held.scale.max())
        width = scale * (held.spec.qmax - held.spec.qmin)
        if width >= least:
            continue
        low = scale * (held.spec.qmin - int(held.zero_point.max()))
        high = low + least
        result.put(placement.tensor, qparams_from_range(low, high, held.spec), f"at least {least:g} wide")
        text = f"range of '{placement.tensor}' widened from {width:g} to {least:g}, the least that the target takes"
        notes.append(Note("range", text))
    for placement in plan:
        if placement.derive is not None:
            scale_of_bias = derived_bias_scale(result[placement.derive.input], result[placement.derive.weight])
            held = result[placement.tensor]
            if not np.array_equal(scale_of_bias, held.scale):
                changed = QParams(held.spec, scale_of_bias, held.zero_point)
                result.put(placement.tensor, changed, *result.origins.get(placement.tensor, ()))
    return Refined(result, tuple(notes))
