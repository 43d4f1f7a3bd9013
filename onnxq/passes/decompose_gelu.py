"""The Gelus of com.microsoft, with and without a bias, in small operators that are recognised as one unit.

Gelu, BiasGelu   x / 2 (1 + erf(x / sqrt(2)))
FastGelu         x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
QuickGelu        x sigmoid(alpha x)
"""

from __future__ import annotations

import math
from typing import Any

from onnxq.graph import Graph
from onnxq.passes.base import PASSES, PassResult
from onnxq.passes.steps import MICROSOFT, Steps, replace_each

OPERATORS = tuple((MICROSOFT, op) for op in ("Gelu", "BiasGelu", "FastGelu", "QuickGelu"))


@PASSES.register("decompose_gelu")
def decompose_gelu(graph: Graph) -> PassResult:
    """Gelu, BiasGelu, FastGelu and QuickGelu of com.microsoft -> Add, Mul, Div and Erf, Tanh or Sigmoid."""
    return replace_each(graph, OPERATORS, _rewrite)


def _rewrite(steps: Steps) -> list[Any]:
    x, op = steps.input(0), steps.node.op
    if steps.input(1) is not None:
        x = steps.typed(steps.op("Add", x, steps.input(1), role="bias"), x)
    if op == "QuickGelu":
        alpha = float(steps.node.attrs.get("alpha", 1.702))
        scaled = x if alpha == 1.0 else steps.op("Mul", x, steps.number(alpha, x))
        return [steps.op("Mul", x, steps.op("Sigmoid", scaled))]
    if op == "FastGelu":
        cubed = steps.op("Mul", steps.op("Mul", x, x), x)
        inner = steps.op("Add", x, steps.op("Mul", cubed, steps.number(0.044715, x)))
        bent = steps.op("Tanh", steps.op("Mul", inner, steps.number(math.sqrt(2 / math.pi), x)))
    else:
        bent = steps.op("Erf", steps.op("Div", x, steps.number(math.sqrt(2), x)))
    product = steps.op("Mul", x, steps.op("Add", bent, steps.number(1.0, x)))
    return [steps.op("Mul", product, steps.number(0.5, x))]
