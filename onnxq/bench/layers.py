"""Kernels of an engine as layers of the float model, so that the times of two files stand side by side.

An engine fuses nodes and calls the kernel after one of them, or after a tensor: a convolution with its ReLU is a kernel
that is called after the ReLU in one file and after the convolution in the other. A kernel counts for the node of its
own operator: the named one, or the nearest one above it that no other kernel is called after.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence

from onnxq.graph import Graph, Node
from onnxq.runtime.engines import Computes, Kernel

_LAYOUT = ("Transpose", "Cast")
"""Operators that engines also insert by themselves."""

_DECORATION = re.compile(r"^(QLinear|Fused|Nhwc|DynamicQuantize|Q(?=Gemm|Attention))|(IntegerToFloat|Integer)$")

FARTHEST = 12
"""Nodes above the one that a kernel is called after among which its own is looked for."""


def plain_operator(op: str) -> str:
    """The operator of ONNX that a kernel computes: Conv for QLinearConv and FusedConv."""
    return _DECORATION.sub("", op)


def computes(op: str, kernel: str) -> bool:
    """Whether a kernel computes an operator by itself."""
    plain = plain_operator(kernel)
    return op == plain or {op, plain} == {"Gemm", "MatMul"}


def layers_of(kernels: Sequence[Kernel], graph: Graph) -> dict[int, str]:
    """Number of a kernel -> the node of the float model that it computes; what was inserted has none."""
    nodes: Mapping[str, Node] = {node.name: node for node in graph.gs.nodes}
    called = {number: node for number, one in enumerate(kernels) if (node := _called_after(one, graph, nodes))}
    taken = {node.name for node in called.values()}
    found = {}
    for number, node in called.items():
        op = plain_operator(kernels[number].op)
        own = node if computes(node.op, op) else _above(node, op, taken, graph)
        if own is not None:
            found[number] = str(own.name)
            taken.add(own.name)
        elif op not in _LAYOUT:
            found[number] = str(node.name)  # several nodes in one kernel that none of them has the operator of
    return found


def _called_after(kernel: Kernel, graph: Graph, nodes: Mapping[str, Node]) -> Node | None:
    if kernel.computes is Computes.CONVERSION:
        return None
    found: list[Node] = []
    for name in (kernel.name, *kernel.made_of):
        maker = nodes.get(name)
        if maker is None and graph.has_tensor(name):
            maker = graph.producer(name)
        if maker is not None and maker.name in nodes:
            found.append(maker)
    own = [node for node in found if computes(node.op, kernel.op)]
    return next(iter(own or found), None)


def _above(node: Node, op: str, taken: set[str], graph: Graph) -> Node | None:
    """The nearest node above of an operator, through nodes that no kernel is called after."""
    waiting: deque[Node] = deque([node])
    seen = {str(node.name)}
    while waiting and len(seen) < FARTHEST:
        for tensor in waiting.popleft().inputs:
            maker: Node | None = graph.producer(tensor)
            if maker is None or maker.name in seen or maker.name in taken:
                continue
            if computes(maker.op, op):
                return maker
            seen.add(maker.name)
            waiting.append(maker)
    return None
