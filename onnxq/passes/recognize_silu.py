"""SiLU (Swish) written as x * Sigmoid(x) is treated as one operation."""

from __future__ import annotations

from onnxq.graph import Graph
from onnxq.passes.base import PASSES, PassResult
from onnxq.passes.gated import Gated, recognize_gated
from onnxq.passes.polynomials import X


@PASSES.register("recognize_silu")
def recognize_silu(graph: Graph) -> PassResult:
    """Group x * Sigmoid(x) as units; the nodes stay. Not a gate that is multiplied with another tensor."""
    return recognize_gated(graph, "SiLU", (Gated("Sigmoid", X, {(1, 1): 1.0}),))
