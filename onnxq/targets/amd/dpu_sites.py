"""Where the rules on positions apply in a graph: the quantizers around each operator, as slots.

The same walk serves a float graph with a plan and a file with Q/DQ nodes: both only have to say which slot an input of
a node reads from, and which slot the quantizer of a tensor is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onnxq.graph import Graph, Node
from onnxq.targets.amd.dpu_rules import POOLS, Site

FOLLOWERS = ("Relu", "Clip", "LeakyRelu", "PRelu")
"""Computed inside the operator before them, so that its result is quantized behind them."""

_LAYERS = ("Conv", "Gemm")
_ELEMENTWISE = ("Add", "Sub", "Mul")
_OPS = (*_LAYERS, *_ELEMENTWISE, *POOLS, "Concat", "Pad", "Slice", "HardSigmoid", "Sigmoid")

InputSlot = Callable[[Node, int], str | None]
OutputSlot = Callable[[Any], str | None]


def find_sites(
    graph: Graph, input_slot: InputSlot, output_slot: OutputSlot, *, sigmoid_is_hard: bool = False
) -> list[Site]:
    """Every operator that a rule speaks of, in the order of the nodes.

    input_slot      the slot that input `port` of a node reads from
    output_slot     the slot that a tensor is quantized into
    sigmoid_is_hard the target computes Sigmoid as HardSigmoid, so that the same rule holds for it
    """
    sites = []
    for node in graph.nodes():
        if node.op not in _OPS or node.domain not in (None, "", "ai.onnx") or not node.outputs:
            continue
        layer = node.op in _LAYERS
        ports = range(1) if layer or node.op not in (*_ELEMENTWISE, "Concat") else range(len(node.inputs))
        output, leaky = _quantized_result(graph, node, output_slot)
        sites.append(
            Site(
                node=str(node.name),
                op=str(node.op),
                inputs=tuple(input_slot(node, port) for port in ports),
                weight=input_slot(node, 1) if layer and len(node.inputs) > 1 else None,
                bias=input_slot(node, 2) if layer and len(node.inputs) > 2 else None,
                output=output,
                leaky=leaky,
                hard_sigmoid=is_hard_sigmoid(node) or (node.op == "Sigmoid" and sigmoid_is_hard),
                swish=node.op == "Mul" and _is_swish(graph, node, sigmoid_is_hard),
            )
        )
    return sites


def is_hard_sigmoid(node: Node) -> bool:
    """Whether a node is the HardSigmoid that the chip has: max(0, min(1, x / 6 + 1 / 2))."""
    alpha, beta = float(node.attrs.get("alpha", 0.2)), float(node.attrs.get("beta", 0.5))
    return bool(node.op == "HardSigmoid") and abs(alpha - 1 / 6) < 1e-6 and abs(beta - 0.5) < 1e-6


def _quantized_result(graph: Graph, node: Node, output_slot: OutputSlot) -> tuple[str | None, bool]:
    """The slot of a node's result, behind an activation that runs inside it, and whether a LeakyRelu is on the way.

    Files of other tools have a Mul by a constant behind pooling and HardSigmoid: the chip's own factor.
    """
    made = node.outputs[0]
    leaky = any(use.node.op == "LeakyRelu" for use in graph.consumers(made))
    slot = output_slot(made)
    if slot is not None:
        return slot, leaky
    for use in graph.consumers(made):
        reader = use.node
        rescales = reader.op == "Mul" and node.op in (*POOLS, "HardSigmoid") and _has_constant(graph, reader)
        if use.port == 0 and (reader.op in FOLLOWERS or rescales):
            slot = output_slot(reader.outputs[0])
            if slot is not None:
                return slot, leaky
    return None, leaky


def _has_constant(graph: Graph, node: Node) -> bool:
    return any(graph.is_constant(tensor) for tensor in node.inputs)


def _is_swish(graph: Graph, node: Node, sigmoid_is_hard: bool) -> bool:
    readers = [use.node for tensor in node.inputs for use in graph.consumers(tensor) if use.port == 0]
    return any(is_hard_sigmoid(reader) or (reader.op == "Sigmoid" and sigmoid_is_hard) for reader in readers)
