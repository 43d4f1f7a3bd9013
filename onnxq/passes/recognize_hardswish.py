"""HardSwish written in small operators is treated as one operation.

HardSwish    x * min(max(x / 6 + 1 / 2, 0), 1)       (Howard et al., 2019)
"""

from __future__ import annotations

import math

from onnxq.graph import Graph, Node
from onnxq.passes.base import PASSES, PassResult
from onnxq.passes.clamp import clamp_of
from onnxq.passes.gated import Gated, recognize_gated
from onnxq.passes.polynomials import X


@PASSES.register("recognize_hardswish")
def recognize_hardswish(graph: Graph) -> PassResult:
    """Group x * HardSigmoid(x) and x * Clip(x + 3, 0, 6) / 6 as units, divided before or after; the nodes stay."""
    forms = (
        Gated("HardSigmoid", X, {(1, 1): 1.0}, _has_usual_slope),
        Gated("Clip", {(0, 0): 3.0, (1, 0): 1.0}, {(1, 1): 1 / 6}, lambda graph, node: _clips_to(graph, node, 6.0)),
        Gated("Clip", {(0, 0): 0.5, (1, 0): 1 / 6}, {(1, 1): 1.0}, lambda graph, node: _clips_to(graph, node, 1.0)),
    )
    return recognize_gated(graph, "HardSwish", forms)


def _has_usual_slope(graph: Graph, node: Node) -> bool:
    alpha, beta = node.attrs.get("alpha", 0.2), node.attrs.get("beta", 0.5)
    return math.isclose(alpha, 1 / 6, rel_tol=1e-3) and math.isclose(beta, 0.5, rel_tol=1e-3)


def _clips_to(graph: Graph, node: Node, high: float) -> bool:
    clamp = clamp_of(graph, node)
    return clamp is not None and clamp.low == 0.0 and math.isclose(clamp.high, high, rel_tol=1e-3)
