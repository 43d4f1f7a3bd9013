"""RMSNormalization of ONNX and SimplifiedLayerNormalization of onnxruntime in small operators.

Y = X / sqrt(mean(X^2) + epsilon) * scale
"""

from __future__ import annotations

from typing import Any

from onnxq.graph import Graph
from onnxq.passes.base import PASSES, PassResult
from onnxq.passes.norm_steps import rms_norm
from onnxq.passes.rewriter import Declined
from onnxq.passes.steps import MICROSOFT, Steps, replace_each

OPERATORS = (
    ("", "RMSNormalization"),
    ("", "SimplifiedLayerNormalization"),
    (MICROSOFT, "SimplifiedLayerNormalization"),
)


@PASSES.register("decompose_rms_normalization")
def decompose_rms_normalization(graph: Graph) -> PassResult:
    """RMSNormalization and SimplifiedLayerNormalization -> Mul, ReduceMean, Sqrt, Div and Mul, which are one unit."""
    return replace_each(graph, OPERATORS, _rewrite)


def _rewrite(steps: Steps) -> list[Any]:
    if steps.output(1) is not None:
        raise Declined("its deviation is read, too")
    rank = steps.rank(steps.input(0))
    axis = int(steps.node.attrs.get("axis", -1)) % rank
    epsilon = float(steps.node.attrs.get("epsilon", 1e-5))
    return [rms_norm(steps, steps.input(0), steps.input(1), list(range(axis, rank)), epsilon), None]
