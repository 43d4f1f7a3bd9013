"""A recognised unit turned into the single ONNX operator that computes it, for targets that take it only so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from onnxq.graph import Graph, Node
from onnxq.graph.attributes import AttributeValues
from onnxq.passes.base import PassResult
from onnxq.passes.edits import node_line

TYPES = ("float32", "float16")
"""onnxruntime has no kernels of these operators for other types."""


def unit_as_operator(
    graph: Graph, op: str, opset: int, attributes: Callable[[Sequence[Node]], AttributeValues]
) -> PassResult:
    """Units whose kind is `op` become nodes of that operator; the opset is raised to the one that has it.

    `attributes` gives those of the new node from the nodes of the unit. The last node's output keeps its name.
    """
    result = PassResult()
    accepted: list[tuple[list[Node], Any]] = []
    for unit in (unit for unit in graph.units.all() if unit.kind == op):
        nodes = [graph.node(name) for name in unit.nodes]
        sources = _read_from_outside(graph, nodes)
        kind = graph.dtype(sources[0])
        if len(sources) != 1:
            result.declined.append(node_line(nodes[-1], f"ends a {op} of {len(sources)} tensors"))
        elif kind is None or kind.name not in TYPES:
            result.declined.append(
                node_line(nodes[-1], f"ends a {op} in {kind}, which onnxruntime has no operator for")
            )
        else:
            accepted.append((nodes, sources[0]))
    if accepted:
        graph.raise_opset(opset)
    for nodes, source in accepted:
        last = nodes[-1]
        graph.units.forget(last.name)
        last.op, last.attrs, last.attr_types = op, attributes(nodes), {}
        last.inputs = [source]
        for node in nodes[:-1]:
            graph.origins.node_became(node.name, last.name)
        graph.remove(nodes[:-1])
        result.changed.append(node_line(last, f"is a {op} for {len(nodes)} nodes"))
    return result


def _read_from_outside(graph: Graph, nodes: Sequence[Node]) -> list[Any]:
    """The computed tensors that the nodes of a unit read and do not make."""
    made = {id(tensor) for node in nodes for tensor in node.outputs}
    read = {t.name: t for node in nodes for t in node.inputs if id(t) not in made and not graph.is_constant(t)}
    return list(read.values())
