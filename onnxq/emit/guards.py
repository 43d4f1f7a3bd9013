"""Guards around float8 pairs, which onnxruntime's optimizer would otherwise take for integers.

From ORT_ENABLE_EXTENDED on, and so by default, onnxruntime rewrites DequantizeLinear -> Conv -> QuantizeLinear into
QLinearConv, moves pairs over Transpose and Reshape, and drops a Relu or Clip in front of QuantizeLinear, whatever the
type of the pair is. With float8 the result does not load, or it loads and computes something else. It looks at the
neighbours of a pair. A Max of one input is that input, and no optimizer of onnxruntime removes it as it does Identity:

    x -> Max -> QuantizeLinear -> DequantizeLinear -> Max -> reader
"""

from __future__ import annotations

from typing import Any

from onnxq.graph import Graph, Node

SUFFIX = "_guard"


def guard(graph: Graph, tensor: Any, name: str, scope: Any) -> Any:
    """The same values behind a node that onnxruntime's optimizer does not look through."""
    guarded = graph.add_variable(f"{name}{SUFFIX}", tensor.dtype, tensor.shape)
    graph.add_node("Max", [tensor], [guarded], name=f"{name}{SUFFIX}", scope=scope)
    return guarded


def is_guard(node: Node | None) -> bool:
    """Whether a node hands on its only input as it is."""
    return node is not None and node.op == "Max" and not node.domain and len(node.inputs) == 1


def unguarded(graph: Graph, tensor: Any) -> Any:
    """What a guard reads; the tensor itself where none makes it."""
    node = graph.producer(tensor)
    return node.inputs[0] if node is not None and is_guard(node) else tensor
