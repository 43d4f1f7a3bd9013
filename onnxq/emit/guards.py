"""Guards for what onnxruntime's optimizer would otherwise quantize, or take for integers.

Float8 pairs. From ORT_ENABLE_EXTENDED on, and so by default, onnxruntime rewrites DequantizeLinear -> Conv ->
QuantizeLinear into QLinearConv, moves pairs over Transpose and Reshape, and drops a Relu or Clip in front of
QuantizeLinear, whatever the type of the pair is. With float8 the result does not load, or it loads and computes
something else. It looks at the neighbours of a pair. A Max of one input is that input, and no optimizer of onnxruntime
removes it as it does Identity:

    x -> Max -> QuantizeLinear -> DequantizeLinear -> Max -> reader

Float layers. From ORT_ENABLE_BASIC on, a Conv, ConvTranspose or Gemm with float weights behind a DequantizeLinear with
one scale gets 8-bit weights with one scale for all channels (its transformer WeightBiasQuantization), although the file
says float. It does so where the input comes from the DequantizeLinear itself:

    DequantizeLinear -> Max -> Conv
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxq.graph import Graph, Node, Use

SUFFIX = "_guard"
_GIVEN_WEIGHTS = ("Conv", "ConvTranspose", "Gemm")
"""What onnxruntime quantizes the float weights of."""


def guard(graph: Graph, tensor: Any, name: str, scope: Any) -> Any:
    """The same values behind a node that onnxruntime's optimizer does not look through."""
    guarded = graph.add_variable(f"{name}{SUFFIX}", tensor.dtype, tensor.shape)
    graph.add_node("Max", [tensor], [guarded], name=f"{name}{SUFFIX}", scope=scope)
    return guarded


def guard_float_layers(graph: Graph) -> None:
    """Keep layers float that have float weights, behind quantizers too; those of one input share their guard."""
    guards: dict[tuple[str, int], Any] = {}
    for node in list(graph.nodes()):
        if not _would_be_quantized(graph, node):
            continue
        data, scope = node.inputs[0], graph.scope_of(node)
        key = (data.name, id(scope))
        if key not in guards:
            guards[key] = guard(graph, data, data.name, scope)
        graph.redirect(data, guards[key], uses=[Use(node, 0)])


def _would_be_quantized(graph: Graph, node: Node) -> bool:
    if node.op not in _GIVEN_WEIGHTS or len(node.inputs) < 2:
        return False
    weight, maker = node.inputs[1], graph.producer(node.inputs[0])
    is_float = graph.is_constant(weight) and graph.dtype(weight) == np.float32
    if not is_float or maker is None or maker.op != "DequantizeLinear":
        return False
    scale = maker.inputs[1]
    return graph.is_constant(scale) and graph.values(scale).size == 1
