"""Scales that half precision holds exactly: in strongly typed networks their type is what is computed in."""

from __future__ import annotations

from onnxq.graph import Graph
from onnxq.half import half_kind, rounded_scales
from onnxq.refine import REFINEMENTS, Refined
from onnxq.types import Backend, QParamsTable, QuantPlan


@REFINEMENTS.register("half_scales")
def round_scales(graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend) -> Refined:
    """Scales rounded to the type of the rest, before anything is fitted to them."""
    return Refined(qparams if backend.rest is None else rounded_scales(qparams, half_kind(backend.rest.dtype)))
