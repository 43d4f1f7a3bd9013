"""Turn a recognised HardSwish into the operator of opset 14, for targets that quantize it as one."""

from __future__ import annotations

from onnxq.graph import Graph
from onnxq.passes.base import PASSES, PassResult
from onnxq.passes.recognize_hardswish import recognize_hardswish
from onnxq.passes.unit_as_operator import unit_as_operator


@PASSES.register("hardswish_as_operator")
def hardswish_as_operator(graph: Graph) -> PassResult:
    """x * Clip(x + 3, 0, 6) / 6 and x * HardSigmoid(x) -> HardSwish(x); raises the opset to 14.

    Not for bfloat16 and float64.
    """
    recognize_hardswish(graph)
    return unit_as_operator(graph, "HardSwish", 14, lambda nodes: {})
