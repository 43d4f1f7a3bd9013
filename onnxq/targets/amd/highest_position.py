"""Positions end at 12 for Vitis AI's 8-bit formats, whatever observer chose them."""

from __future__ import annotations

from onnxq.graph import Graph
from onnxq.refine import REFINEMENTS, Refined
from onnxq.targets.amd.dpu_positions import plan_positions, with_positions
from onnxq.types import Backend, QParamsTable, QuantPlan

HIGHEST_POSITION = 12


@REFINEMENTS.register("vitis_highest_position")
def limit_positions(graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend) -> Refined:
    """Lower positions above 12 to 12: values that small use fewer of the integers, and none is clipped."""
    before = plan_positions(plan, qparams)
    after = {slot: min(position, HIGHEST_POSITION) for slot, position in before.items()}
    notes = tuple(
        f"position of '{slot}' lowered from {before[slot]} to {HIGHEST_POSITION}, the highest of Vitis AI for 8 bits"
        for slot in before
        if after[slot] != before[slot]
    )
    return Refined(with_positions(plan, qparams, before, after, "vitis_highest_position"), notes)
