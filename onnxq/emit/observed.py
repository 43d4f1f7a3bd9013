"""What emitters are told of tensors that are only observed.

Such a tensor has a range and stays float. Models have no quantizer for it, constants keep their values, and a node that
reads it does not run in integers. Most tables quantize what they list, so it is not in them. tpu-mlir decides by
another table in which precision an operator runs: its tables of ranges list the activation, and the operators around it
run in float. Each emitter declares which of these it is (`Emitter.observed`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from onnxq.graph import Graph
from onnxq.types import Placement, QuantPlan
from onnxq.types.reason import Reason

Observed = Literal["float", "range", "precision"]
"""What the files of an emitter say of a tensor that is only observed.

float      nothing: it is float, and so is what reads it
range      its range, which decides nothing: what reads or makes it is float
precision  nothing of the tensor, but that what reads or makes it runs in float
"""


def plan_for(shown_as: Observed, graph: Graph, plan: QuantPlan) -> QuantPlan:
    """The plan as an emitter has to carry it out; the plan itself where nothing is only observed."""
    observed = [placement for placement in plan if placement.observe_only]
    if not observed:
        return plan
    result = plan.active
    if shown_as == "range":
        listed = {placement.tensor: placement for placement in observed if not graph.is_constant(placement.tensor)}
        shown = {**listed, **result.placements}
        result = replace(result, placements={name: shown[name] for name in plan.placements if name in shown})
    return _with_float_nodes(graph, result, observed, makers_too=shown_as != "float")


def _with_float_nodes(graph: Graph, plan: QuantPlan, observed: Sequence[Placement], *, makers_too: bool) -> QuantPlan:
    """The plan with the nodes left float that read an observed tensor as data or weight, or (if asked for) make one.

    A float bias keeps no layer from computing in integers.
    """
    floating: dict[str, Reason] = {}
    for placement in observed:
        tensor = placement.tensor
        for use in graph.consumers(tensor) if placement.role != "bias" else ():
            floating[str(use.node.name)] = Reason("only_observed", f"its input '{tensor}' is only observed")
        maker = graph.producer(tensor)
        if makers_too and maker is not None:
            name = str(maker.name)
            reason = Reason("only_observed", f"its result '{tensor}' is only observed")
            floating.setdefault(plan.fused.get(name, name), reason)
    floating = {node: why for node, why in floating.items() if node in plan.quantized}
    for node, lead in plan.fused.items():
        if lead in floating:
            floating.setdefault(node, Reason("leader_float", f"runs with '{lead}', which stays float"))
    return replace(
        plan,
        quantized={node: why for node, why in plan.quantized.items() if node not in floating},
        fused={node: lead for node, lead in plan.fused.items() if node not in floating},
        left_float={**plan.left_float, **floating},
    )
