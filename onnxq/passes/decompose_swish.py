"""Swish in small operators: x sigmoid(alpha x), with alpha 1 a SiLU."""

from __future__ import annotations

from typing import Any

from onnxq.graph import Graph
from onnxq.passes.base import PASSES, PassResult
from onnxq.passes.steps import Steps, replace_each


@PASSES.register("decompose_swish")
def decompose_swish(graph: Graph) -> PassResult:
    """Swish -> Sigmoid and Mul."""
    return replace_each(graph, [("", "Swish")], _rewrite)


def _rewrite(steps: Steps) -> list[Any]:
    x, alpha = steps.input(0), float(steps.node.attrs.get("alpha", 1.0))
    scaled = x if alpha == 1.0 else steps.op("Mul", x, steps.number(alpha, x))
    return [steps.op("Mul", x, steps.op("Sigmoid", scaled))]
