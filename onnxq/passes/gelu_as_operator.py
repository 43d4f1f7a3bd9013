"""Turn a recognised Gelu into the operator of opset 20, for targets that compute it as one and have no Erf."""

from __future__ import annotations

from collections.abc import Sequence

from onnxq.graph import Graph, Node
from onnxq.graph.attributes import AttributeValues
from onnxq.passes.base import PASSES, PassResult
from onnxq.passes.recognize_gelu import recognize_gelu
from onnxq.passes.unit_as_operator import unit_as_operator


@PASSES.register("gelu_as_operator")
def gelu_as_operator(graph: Graph) -> PassResult:
    """Gelu in small operators -> Gelu(x), approximate = tanh where it is written with Tanh; raises the opset to 20.

    Not for bfloat16 and float64, which onnxruntime has no Gelu for.
    """
    recognize_gelu(graph)
    return unit_as_operator(graph, "Gelu", 20, _approximation)


def _approximation(nodes: Sequence[Node]) -> AttributeValues:
    return {"approximate": "tanh"} if any(node.op == "Tanh" for node in nodes) else {}
