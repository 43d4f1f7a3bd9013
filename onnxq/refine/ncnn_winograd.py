"""Six bits for the weights of 3x3 convolutions in ncnn: its Winograd kernels add in 16 bits, more would overflow."""

from __future__ import annotations

import numpy as np

from onnxq.graph import Graph, Node
from onnxq.refine import REFINEMENTS, Refined
from onnxq.types import Backend, QParams, QParamsTable, QuantPlan

WINOGRAD_STEPS = 31
"""Weights from -31 to 31, as ncnn2table scales them."""


@REFINEMENTS.register("ncnn_winograd")
def six_bit_weights(graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend) -> Refined:
    """Enlarge the steps of weights that Winograd kernels read, so that their integers lie within -31 and 31."""
    result = QParamsTable(dict(qparams.entries), dict(qparams.integer_weights), dict(qparams.provenance))
    changed = []
    for node in graph.nodes("Conv"):
        weight = node.inputs[1].name
        if weight not in plan or not goes_to_winograd(graph, node):
            continue
        old = qparams[weight]
        factor = old.spec.qmax / WINOGRAD_STEPS
        scale = (old.scale.astype(np.float64) * factor).astype(np.float32)
        result.put(
            weight,
            QParams(old.spec, scale, old.zero_point),
            f"{qparams.provenance.get(weight, '')}, 6 bits for Winograd".lstrip(", "),
        )
        changed.append(node.name)
    if not changed:
        return Refined(result)
    shown = ", ".join(f"'{name}'" for name in changed[:4]) + (", ..." if len(changed) > 4 else "")
    note = (
        f"weights of {len(changed)} 3x3 convolutions have 6 bits, which ncnn's Winograd kernels hold ({shown}); "
        "ncnn:winograd=off gives them 8, for programs that set use_winograd_convolution = false"
    )
    return Refined(result, (note,))


def goes_to_winograd(graph: Graph, node: Node) -> bool:
    """A convolution of one group, 3x3, stride 1, dilation 1."""
    kernel = graph.values(node.inputs[1]).shape[2:] if graph.is_constant(node.inputs[1]) else ()
    ones = [*node.attrs.get("strides", (1, 1)), *node.attrs.get("dilations", (1, 1))]
    return tuple(kernel) == (3, 3) and all(step == 1 for step in ones) and node.attrs.get("group", 1) == 1
