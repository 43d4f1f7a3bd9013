"""Gelu written in small operators is treated as one operation.

erf form     x / 2 * (1 + erf(x / sqrt(2)))
tanh form    x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))       (Hendrycks and Gimpel, 2016)
"""

from __future__ import annotations

import math

from onnxq.graph import Graph
from onnxq.passes.base import PASSES, PassResult
from onnxq.passes.gated import Gated, recognize_gated

_SLOPE = math.sqrt(2 / math.pi)
_OUTER = {(1, 0): 0.5, (1, 1): 0.5}


@PASSES.register("recognize_gelu")
def recognize_gelu(graph: Graph) -> PassResult:
    """Group both forms of Gelu as units, in any order and grouping of the operators; the nodes stay."""
    erf = Gated("Erf", {(1, 0): math.sqrt(0.5)}, _OUTER)
    tanh = Gated("Tanh", {(1, 0): _SLOPE, (3, 0): 0.044715 * _SLOPE}, _OUTER)
    return recognize_gated(graph, "Gelu", (erf, tanh))
