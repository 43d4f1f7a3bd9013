"""SkipLayerNormalization and SkipSimplifiedLayerNormalization of com.microsoft as a sum and a norm."""

from __future__ import annotations

from typing import Any

from onnxq.graph import Graph
from onnxq.passes.base import PASSES, PassResult
from onnxq.passes.norm_steps import rms_norm
from onnxq.passes.rewriter import Declined
from onnxq.passes.steps import MICROSOFT, Steps, replace_each

LAYER_NORMALIZATION = 17
"""The opset that has LayerNormalization."""


@PASSES.register("decompose_skip_layernorm")
def decompose_skip_layernorm(graph: Graph) -> PassResult:
    """Skip(Simplified)LayerNormalization -> Add and LayerNormalization, or an RMSNorm in small operators."""
    result = replace_each(graph, [(MICROSOFT, "SkipLayerNormalization")], _centered, opset=LAYER_NORMALIZATION)
    simplified = replace_each(graph, [(MICROSOFT, "SkipSimplifiedLayerNormalization")], _simplified)
    return PassResult(result.changed + simplified.changed, result.declined + simplified.declined)


def _sum(steps: Steps, bias: Any) -> Any:
    if steps.output(1) is not None or steps.output(2) is not None:
        raise Declined("its mean or deviation is read, too")
    x, skip = steps.input(0), steps.input(1)
    total = steps.typed(steps.op("Add", x, skip, role="sum"), x)
    return total if bias is None else steps.typed(steps.op("Add", total, bias, role="sum"), x)


def _centered(steps: Steps) -> list[Any]:
    total = _sum(steps, steps.input(4))
    attrs = {"axis": -1, "epsilon": float(steps.node.attrs.get("epsilon", 1e-12))}
    inputs = [total, steps.input(2), *([steps.input(3)] if steps.input(3) is not None else [])]
    normal = steps.op("LayerNormalization", *inputs, role="norm", attrs=attrs)
    return [normal, None, None, total if steps.output(3) is not None else None]


def _simplified(steps: Steps) -> list[Any]:
    rank = steps.rank(steps.input(0))
    total = _sum(steps, steps.input(3))
    epsilon = float(steps.node.attrs.get("epsilon", 1e-12))
    normal = rms_norm(steps, total, steps.input(2), [rank - 1], epsilon)
    return [normal, None, None, total if steps.output(3) is not None else None]
