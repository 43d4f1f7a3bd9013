"""Positions that the DPU compilers accept: the rules of `dpu_rules` applied to calibrated parameters until all hold.

Only parameters change. Weights and biases are quantized again from their float values with the new scales when the
file is written, and tensors that share a scale move together.
"""

from __future__ import annotations

import numpy as np

from onnxq.graph import Graph, Node
from onnxq.numerics.positions import exact_position, scale_at
from onnxq.refine import REFINEMENTS, Refined, Refinement
from onnxq.targets.amd.dpu_costs import Costs
from onnxq.targets.amd.dpu_rules import SWITCHES, Breach
from onnxq.targets.amd.dpu_settle import QUARK_ROUNDS, Settled, settle
from onnxq.targets.amd.dpu_sites import find_sites
from onnxq.types import Backend, Edge, QParams, QParamsTable, QuantPlan
from onnxq.types.note import Note

NAME = "dpu_positions"


def refine_positions(graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend) -> Refined:
    """Move positions until every shift fits the chip; one note for each quantizer that moved."""
    positions = plan_positions(plan, qparams)

    def input_slot(node: Node, port: int) -> str | None:
        name = str(node.inputs[port].name)
        placement = plan.placements.get(name)
        if placement is None or (placement.edges is not None and Edge(str(node.name), port) not in placement.edges):
            return None
        return plan.leader(name)

    def output_slot(tensor: object) -> str | None:
        name = str(getattr(tensor, "name", ""))
        return plan.leader(name) if name in plan else None

    sites = find_sites(graph, input_slot, output_slot, sigmoid_is_hard="dpu_sigmoid" in backend.simulations)
    costs = Costs(graph, plan, qparams, positions)
    settled = settle(sites, positions, backend.skipped_rules.get(NAME, ()), costs)
    moved = with_positions(plan, qparams, positions, settled.positions, NAME)
    return Refined(moved, tuple(_notes(positions, settled, qparams)))


def plan_positions(plan: QuantPlan, qparams: QParamsTable) -> dict[str, int]:
    """Leader -> position, for every quantizer of 8 bits with one power-of-two scale: the rules are for int8."""
    found: dict[str, int] = {}
    for placement in plan:
        leader = plan.leader(placement.tensor)
        held = qparams[leader]
        position = exact_position(held.scale) if held.spec.evenly_spaced and held.spec.bits == 8 else None
        if position is not None:
            found[leader] = position
    return found


def with_positions(
    plan: QuantPlan, qparams: QParamsTable, before: dict[str, int], after: dict[str, int], mover: str
) -> QParamsTable:
    """A copy of the table with the new positions of the leaders; every member of a group has that of its leader."""
    result = qparams.copy()
    for placement in plan:
        leader, tensor = plan.leader(placement.tensor), placement.tensor
        if leader in before and after[leader] != before[leader]:
            held = qparams[tensor]
            scale = np.asarray(scale_at(after[leader]), np.float32)
            moved = QParams(held.spec, scale.reshape(held.scale.shape), held.zero_point)
            result.change(tensor, moved, f"moved by {mover}")
            result.integer_weights.pop(tensor, None)  # fixed for the scale that it had
    return result


def _notes(before: dict[str, int], settled: Settled, qparams: QParamsTable) -> list[str]:
    causes: dict[str, list[Breach]] = {}
    for breach in settled.changes:
        causes.setdefault(breach.slot, []).append(breach)
    notes: list[str] = []
    for slot, found in causes.items():
        if settled.positions[slot] == before[slot]:
            continue
        dropped = "; its fixed integers are dropped" if slot in qparams.integer_weights else ""
        text = f"position of '{slot}' moved from {before[slot]} to {settled.positions[slot]}: {found[-1]}{dropped}"
        notes.append(Note("position", text))
    if settled.contradiction:
        notes.append(
            f"the rules contradict each other on these positions, so that after {settled.rounds} rounds positions of "
            "activations were only lowered, which always ends"
        )
    elif settled.rounds > QUARK_ROUNDS:
        notes.append(
            f"the positions settled after {settled.rounds} rounds; tools that stop after {QUARK_ROUNDS} do not"
        )
    return notes


REFINEMENTS.add(NAME, Refinement(refine_positions, rules=SWITCHES))
