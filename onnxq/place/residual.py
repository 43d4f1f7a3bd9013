"""Which input of a residual Add comes straight from a convolution.

TensorRT computes `Add(Conv(...), skip)` inside the convolution when the skip input is INT8 and nothing stands between
the convolution and the Add, so exactly one input must stay unquantized: the one with a convolution as its backbone. If
both have one, it is the branch with the longer way back to where the branches part (the main path of the block).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from onnxq.graph import Graph, Node

_BACKBONES = ("Conv", "ConvTranspose")
_PASSED_THROUGH = (
    "Relu",
    "Clip",
    "MaxPool",
    "BatchNormalization",
    "LeakyRelu",
    "Identity",
    "Reshape",
    "Transpose",
    "Cast",
)


class Residual(NamedTuple):
    """How an Add is quantized, and why.

    port       the input that stays unquantized; None: there is none
    in_float   no convolution can compute the Add, which stays float; without it and `port`, both inputs are quantized
    """

    port: int | None
    why: str
    in_float: bool = False


def residual_of(graph: Graph, add: Node) -> Residual:
    """The port to leave unquantized, and the reason in words."""
    if len(add.inputs) != 2 or any(graph.is_constant(tensor) for tensor in add.inputs):
        return Residual(None, "an input is a constant", in_float=True)
    left, right = (_backbone(graph, tensor) for tensor in add.inputs)
    if left is None and right is None:
        return Residual(None, "no input comes from a convolution", in_float=True)
    if left is right:
        return Residual(None, "both inputs come from the same convolution")
    way_left, way_right, meeting = _ways_to_common_ancestor(graph, add)
    if left is None or right is None:
        port, backbone = (0, left) if left is not None else (1, right)
        assert backbone is not None
        if meeting is backbone:
            return Residual(None, f"the branches part at the convolution '{backbone.name}' itself")
        return Residual(port, f"'{backbone.name}' is computed together with this Add")
    port = 0 if way_left >= way_right else 1
    kept = left if port == 0 else right
    return Residual(port, f"'{kept.name}' is computed together with this Add (the longer of two convolution branches)")


def _backbone(graph: Graph, tensor: Any) -> Node | None:
    """The convolution that a tensor comes from through operators that TensorRT fuses behind it."""
    node = graph.producer(tensor)
    while node is not None and node.op not in _BACKBONES:
        data = [t for t in node.inputs if t.name and not graph.is_constant(t)]
        if node.op in _PASSED_THROUGH or (node.op in ("Add", "Mul") and len(data) == 1):
            node = graph.producer(data[0]) if data else None
        elif node.op == "Mul" and len(data) == 2:  # x * Sigmoid(x)
            node = _swish_source(graph, node)
        else:
            return None
    return node


def _swish_source(graph: Graph, mul: Node) -> Node | None:
    for one, other in (mul.inputs, reversed(mul.inputs)):
        gate = graph.producer(other)
        if gate is not None and gate.op in ("Sigmoid", "HardSigmoid") and gate.inputs[0] is one:
            return graph.producer(one)
    return None


def _ways_to_common_ancestor(graph: Graph, add: Node) -> tuple[int, int, Node | None]:
    """Steps from either input to the nearest common ancestor; searched level by level from both sides at once.

    The search ends where the block began, so the cost is that of the block and not of the network.
    """
    seen: tuple[dict[int, int], dict[int, int]] = ({}, {})
    fronts = [[add.inputs[0]], [add.inputs[1]]]
    step = 0
    while fronts[0] or fronts[1]:
        for side in (0, 1):
            following: list[Any] = []
            for tensor in fronts[side]:
                if id(tensor) in seen[side]:
                    continue
                seen[side][id(tensor)] = step
                if id(tensor) in seen[1 - side]:
                    return seen[0][id(tensor)], seen[1][id(tensor)], graph.producer(tensor)
                producer = graph.producer(tensor)
                if producer is not None:
                    following.extend(t for t in producer.inputs if t.name and not graph.is_constant(t))
            fronts[side] = following
        step += 1
    return step, step, None
