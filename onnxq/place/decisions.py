"""Values that decide something: a branch, the end of a loop, an index, a shape. Rounding them is not a small error.

What decides stays float as far back as its last weighted layer: from the port that is decided (`DECIDED`) backwards
through everything that computes it, the layer with what runs inside it left out. The layer is quantized, and its
result is too for other readers; the way to the decision reads it as float. Values from `Shape` and `Size` depend on no
other values.

A class that leaves the model (ArgMax, TopK at the end) decides nothing inside it. Nor does the condition of a Where:
each of its elements chooses for itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from onnxq.graph import Graph, Node, bodies
from onnxq.graph.operator_kinds import DECIDED, LAYERS
from onnxq.types.reason import Reason

_BRANCHES = ("If", "Loop")
_OF_SHAPES = ("Shape", "Size")


class Decision(NamedTuple):
    """The node whose course, choice or shape is decided."""

    node: str
    op: str

    @property
    def why_float(self) -> Reason:
        if self.op in _BRANCHES:
            return Reason("decides", f"decides the course of '{self.node}': rounding could take another branch")
        return Reason("decides", f"decides what {self.op} '{self.node}' takes: rounding could take something else")


def decisive_nodes(graph: Graph, nodes: list[Node], inside_layers: Collection[str]) -> dict[str, Decision]:
    """Nodes between the last weighted layers and a decision, and for what they decide.

    `inside_layers` are operators that targets compute inside the layer in front of them, if nobody else reads it.
    """
    pending = [(tensor, Decision(str(node.name), str(node.op))) for node in nodes for tensor in _decided(node)]
    if not pending:
        return {}
    passed_in = _passed_in(nodes)
    found: dict[str, Decision] = {}
    seen: set[int] = set()
    while pending:
        tensor, decision = pending.pop()
        if id(tensor) in seen:
            continue
        seen.add(id(tensor))
        pending.extend((source, decision) for source in passed_in.get(id(tensor), ()))
        maker = graph.producer(tensor)
        if maker is None or maker.op in _OF_SHAPES or _ends_layer(graph, maker, inside_layers):
            continue
        if bodies(maker):
            number = next(place for place, made in enumerate(maker.outputs) if made is tensor)
            pending.extend((made, decision) for made in _made_inside(maker, number))
            continue
        found.setdefault(str(maker.name), decision)
        pending.extend((read, decision) for read in maker.inputs if read.name)
    return found


def _decided(node: Node) -> Iterator[Any]:
    ports = DECIDED.get(str(node.op), ()) if _is_of_onnx(node) else ()
    yield from (node.inputs[port] for port in ports if port < len(node.inputs) and node.inputs[port].name)
    if node.op == "Loop" and _is_of_onnx(node):
        yield from node.attrs["body"].outputs[:1]


def _is_of_onnx(node: Node) -> bool:
    """Whether an operator is ONNX's own, and not one of another domain with the same name."""
    return node.domain in (None, "", "ai.onnx")


def _ends_layer(graph: Graph, node: Node, inside_layers: Collection[str]) -> bool:
    """Whether a node is a weighted layer, its bias, or an activation that runs inside it."""
    for _ in range(3):
        if node.op in LAYERS:
            return True
        unit = graph.units.of(node.name)
        is_bias = unit is not None and unit.kind == "MatMulAdd" and unit.last == node.name
        if is_bias or node.op not in inside_layers or not node.inputs:
            return is_bias
        read = node.inputs[0]
        maker = graph.producer(read)
        if maker is None or graph.is_output(read) or len(graph.consumers(read)) != 1:
            return False
        node = maker
    return False


def _passed_in(nodes: list[Node]) -> dict[int, list[Any]]:
    """Input of a body -> where its values come from: inputs of the node, and results of the iteration before."""
    found: dict[int, list[Any]] = {}
    for node in nodes:
        if node.op not in ("Loop", "Scan") or not _is_of_onnx(node):
            continue
        body = node.attrs["body"]
        if node.op == "Loop":  # iteration and condition go in first, the condition comes out first
            for place, state in enumerate(body.inputs[2:]):
                found[id(state)] = [*node.inputs[2 + place : 3 + place], *body.outputs[1 + place : 2 + place]]
            continue
        states = len(node.inputs) - int(node.attrs["num_scan_inputs"])
        for place, state in enumerate(body.inputs):
            carried = body.outputs[place : place + 1] if place < states else []
            found[id(state)] = [*node.inputs[place : place + 1], *carried]
    return found


def _made_inside(node: Node, number: int) -> list[Any]:
    """The results of bodies that output `number` of a node with bodies is made of."""
    first = 1 if node.op == "Loop" else 0
    return [body.outputs[first + number] for body in bodies(node) if first + number < len(body.outputs)]
