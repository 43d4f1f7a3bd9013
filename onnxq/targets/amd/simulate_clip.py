"""Clip on the DPU: both bounds are whole numbers in -128 .. 127."""

from __future__ import annotations

import numpy as np

from onnxq.emit.simulations import SIMULATIONS
from onnxq.emit.simulations.rewrite import line, on_chip
from onnxq.graph import Graph, Node
from onnxq.types import QParamsTable, QuantPlan

LOWEST, HIGHEST = -128, 127


def chip_bound(bound: float) -> int:
    """The whole number nearest to a bound, inside the range of int8; a half goes to the even one."""
    return LOWEST if bound < LOWEST else HIGHEST if bound > HIGHEST else round(bound)


@SIMULATIONS.register("dpu_clip")
def simulate_clip(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> list[str]:
    """The bounds of each Clip become whole numbers; one that was left out becomes -128 or 127."""
    notes = []
    for node in on_chip(graph, plan, "Clip"):
        known = [_bound(graph, node, port, default) for port, default in ((1, LOWEST), (2, HIGHEST))]
        if None in known:
            notes.append(line(node, "its bounds are computed at run time, so that they stay as they are"))
            continue
        kind = graph.dtype(node.outputs[0]) or np.dtype(np.float32)
        bounds = [chip_bound(bound) for bound in known if bound is not None]
        made = [
            graph.add_constant(f"{node.name}_bound", np.asarray(bound, kind), scope=graph.scope_of(node))
            for bound in bounds
        ]
        node.inputs = [node.inputs[0], *made]
        if bounds != known:
            notes.append(line(node, f"its bounds {known[0]:g} and {known[1]:g} become {bounds[0]} and {bounds[1]}"))
    return notes


def _bound(graph: Graph, node: Node, port: int, default: int) -> float | None:
    if port >= len(node.inputs) or not node.inputs[port].name:
        return float(default)
    tensor = node.inputs[port]
    return float(graph.values(tensor).reshape(-1)[0]) if graph.is_constant(tensor) else None
