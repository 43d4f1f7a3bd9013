"""Do a plan and its parameters, read from files that may have been edited, fit together and fit the model?"""

from __future__ import annotations

import numpy as np

from onnxq.errors import SpecError, did_you_mean
from onnxq.graph import Graph
from onnxq.types import Placement, QParamsTable, QuantPlan


def check_references(graph: Graph, plan: QuantPlan) -> None:
    """Every name that a placement or a node of the plan refers to is one that the plan or the model has."""
    for placement in plan:
        tensor = placement.tensor
        if placement.tie is not None:
            leader = plan.placements.get(placement.tie)
            if leader is None:
                raise SpecError(f"the plan ties tensor '{tensor}' to '{placement.tie}', which it does not quantize")
            if leader.tie is not None:
                raise SpecError(
                    f"the plan ties tensor '{tensor}' to '{placement.tie}', which is tied to '{leader.tie}' itself: "
                    "name the tensor that has the scale"
                )
        for name in placement.derive or ():
            if name not in plan:
                raise SpecError(
                    f"the plan derives the scale of tensor '{tensor}' from '{name}', which it does not quantize"
                )
        for name in placement.observe:
            if not graph.has_tensor(name):
                raise SpecError(f"the plan takes the range of tensor '{tensor}' from '{name}', which is no tensor")
    nodes = {*plan.quantized, *plan.fused, *plan.left_float}
    for node, leader_node in plan.fused.items():
        if leader_node not in nodes:
            raise SpecError(f"the plan lets node '{node}' run inside '{leader_node}', which is no node")


def check_parameters(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> None:
    """Every entry belongs to a tensor that the plan quantizes; integer weights have its shape and its range."""
    for name in (*qparams.entries, *qparams.integer_weights):
        if name not in plan:
            raise SpecError(
                f"the parameters have an entry for '{name}', which the plan does not quantize."
                f"{did_you_mean(name, plan.placements)} Take it out, or give the plan that belongs to the parameters"
            )
    for name, values in qparams.integer_weights.items():
        _check_integers(graph, plan[name], values)


def _check_integers(graph: Graph, placement: Placement, values: np.ndarray) -> None:
    name, spec = placement.tensor, placement.spec
    if placement.role not in ("weight", "bias") or not spec.evenly_spaced:
        raise SpecError(f"integer_weights: '{name}' is no weight that is stored as integers ({placement.role}, {spec})")
    shape = graph.shape(name)
    if shape is not None and tuple(shape) != values.shape:
        raise SpecError(f"integer_weights: '{name}' has shape {list(shape)}, its integers have {list(values.shape)}")
    if values.size and (values.min() < spec.qmin or values.max() > spec.qmax):
        wrong = values.min() if values.min() < spec.qmin else values.max()
        raise SpecError(f"integer_weights: '{name}' holds {wrong}, outside of [{spec.qmin}, {spec.qmax}]")
