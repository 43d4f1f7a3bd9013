"""Six bits for the weights of 3x3 convolutions in ncnn: its Winograd kernels add in 16 bits, more would overflow."""

from __future__ import annotations

import numpy as np

from onnxq.graph import Graph, Node
from onnxq.numerics import next_power_of_two
from onnxq.refine import REFINEMENTS, Refined
from onnxq.types import Backend, QParams, QParamsTable, QuantPlan

WINOGRAD_STEPS = 31
"""Weights from -31 to 31, as ncnn2table scales them."""

_ROUNDING = 1e-6
"""By how much a scale in float32 may be off."""


@REFINEMENTS.register("ncnn_winograd")
def six_bit_weights(graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend) -> Refined:
    """Enlarge the steps of weights that Winograd kernels read, so that their integers lie within -31 and 31.

    Weights that share a quantizer with such a one get the same steps.
    """
    result = qparams.copy()
    changed = []
    wider: dict[str, np.ndarray] = {}
    for node in graph.nodes("Conv"):
        weight = node.inputs[1].name
        if weight not in plan or not goes_to_winograd(graph, node):
            continue
        leader, scale = plan.leader(weight), _six_bit_scale(graph.values(weight), qparams[weight])
        wider[leader] = np.maximum(wider.get(leader, scale), scale)
        changed.append(node.name)
    for placement in plan:
        tensor, leader = placement.tensor, plan.leader(placement.tensor)
        if leader in wider:
            old = qparams[tensor]
            result.change(tensor, QParams(old.spec, wider[leader], old.zero_point), "6 bits for Winograd")
            result.integer_weights.pop(tensor, None)  # fixed for the scale that it had
    if not changed:
        return Refined(result)
    shown = ", ".join(f"'{name}'" for name in changed[:4]) + (", ..." if len(changed) > 4 else "")
    note = (
        f"weights of {len(changed)} 3x3 convolutions have 6 bits, which ncnn's Winograd kernels hold ({shown}); "
        "ncnn:winograd=off gives them 8, for programs that set use_winograd_convolution = false"
    )
    return Refined(result, (note,))


def _six_bit_scale(values: np.ndarray, held: QParams) -> np.ndarray:
    """Steps with which no integer is beyond 31, also where the observer of the weight has clipped it.

    ncnn quantizes the float weights itself and saturates at 127, so that a clipped weight would overflow the kernels.
    Steps that are large enough already stay: training comes here with those of an earlier call.
    """
    own = held.scale.astype(np.float64)
    rows = np.abs(values).reshape(held.scale.size if held.scale.ndim else 1, -1).astype(np.float64)
    needed = rows.max(axis=1, initial=0.0).reshape(held.scale.shape) / WINOGRAD_STEPS
    wider = own * (held.spec.qmax / WINOGRAD_STEPS)
    of_eight_bits = wider <= needed * (1 + _ROUNDING)
    enough = np.asarray(np.maximum(np.where(of_eight_bits, wider, own), needed), np.float32)
    return np.asarray(next_power_of_two(enough), np.float32) if held.spec.power_of_two else enough


def goes_to_winograd(graph: Graph, node: Node) -> bool:
    """A convolution of one group, 3x3, stride 1, dilation 1."""
    kernel = graph.values(node.inputs[1]).shape[2:] if graph.is_constant(node.inputs[1]) else ()
    ones = [*node.attrs.get("strides", (1, 1)), *node.attrs.get("dilations", (1, 1))]
    return tuple(kernel) == (3, 3) and all(step == 1 for step in ones) and node.attrs.get("group", 1) == 1
