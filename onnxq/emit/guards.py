"""Guards around float8 pairs, which onnxruntime's optimizer would otherwise take for integers.

From ORT_ENABLE_EXTENDED on, and so by default, onnxruntime rewrites DequantizeLinear -> Conv -> QuantizeLinear into
QLinearConv, moves pairs over Transpose and Reshape, and drops a Relu or Clip in front of QuantizeLinear, whatever the
type of the pair is. With float8 the result does not load, or it loads and computes something else. It looks at the
neighbours of a pair. A Max of one input is that input, and no optimizer of onnxruntime removes it as it does Identity:

    x -> Max -> QuantizeLinear -> DequantizeLinear -> Max -> reader
"""

from __future__ import annotations

from typing import Any

from onnxq.graph import Graph

SUFFIX = "_guard"


def guard(graph: Graph, tensor: Any, name: str, scope: Any) -> Any:
    """The same values behind a node that onnxruntime's optimizer does not look through."""
    guarded = graph.add_variable(f"{name}{SUFFIX}", tensor.dtype, tensor.shape)
    graph.add_node("Max", [tensor], [guarded], name=f"{name}{SUFFIX}", scope=scope)
    return guarded
