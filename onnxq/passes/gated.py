"""Activations of the form "polynomial of x and gate(polynomial of x)": Gelu, SiLU, HardSwish."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from onnxq.graph import Graph, Node
from onnxq.passes.base import PassResult
from onnxq.passes.polynomials import ARITHMETIC, Expander, G, Polynomial, X, same
from onnxq.passes.units import add_unit

_MAX_STEPS = 6
_MAX_TENSORS = 32


@dataclass(frozen=True)
class Gated:
    """One way to write an activation.

    gate     the operator in the middle, and `accepts` for what else it must fulfil
    inner    the polynomial of x that the gate reads
    outer    the polynomial of x and the gate's output g that the activation returns
    """

    gate: str
    inner: Polynomial
    outer: Polynomial
    accepts: Callable[[Graph, Node], bool] = lambda graph, node: True


def recognize_gated(graph: Graph, kind: str, forms: tuple[Gated, ...]) -> PassResult:
    """Group the nodes of every place where one of `forms` fits as a unit of `kind`."""
    result = PassResult()
    by_gate: dict[str, list[Gated]] = {}
    for form in forms:
        by_gate.setdefault(form.gate, []).append(form)
    for node in graph.nodes():
        for form in by_gate.get(node.op, ()) if not node.domain else ():
            found = _match(graph, node, form) if form.accepts(graph, node) else None
            if found is not None:
                add_unit(graph, result, kind, found)
                break
    return result


def _match(graph: Graph, gate: Node, form: Gated) -> list[Node] | None:
    read, made = gate.inputs[0], gate.outputs[0]
    for source in _tensors_above(graph, read):
        inner = Expander(graph, {id(source): X})
        if not same(inner.expand(read), form.inner):
            continue
        for root in _nodes_below(graph, made):
            outer = Expander(graph, {id(source): X, id(made): G})
            if same(outer.expand(root.outputs[0]), form.outer):
                return list(dict.fromkeys([*inner.nodes, gate, *outer.nodes]))
    return None


def _tensors_above(graph: Graph, tensor: Any) -> list[Any]:
    """The tensor and what it is computed from by arithmetic, nearest first."""
    found = {id(tensor): tensor}
    front = [tensor]
    for _ in range(_MAX_STEPS):
        makers = [graph.producer(item) for item in front]
        front = []
        for maker in makers:
            for item in maker.inputs if maker is not None and not maker.domain and maker.op in ARITHMETIC else ():
                if id(item) not in found and len(found) < _MAX_TENSORS and not graph.is_constant(item):
                    found[id(item)] = item
                    front.append(item)
    return list(found.values())


def _nodes_below(graph: Graph, tensor: Any) -> list[Node]:
    """The arithmetic nodes that depend on a tensor, nearest first."""
    found: dict[Node, None] = {}
    front = [tensor]
    for _ in range(_MAX_STEPS):
        readers = [use.node for item in front for use in graph.consumers(item)]
        front = []
        for node in readers:
            if node not in found and len(found) < _MAX_TENSORS and not node.domain and node.op in ARITHMETIC:
                found[node] = None
                front.append(node.outputs[0])
    return list(found)
