"""Turn a recognised Gelu into the operator of opset 20, for targets that compute it as one and have no Erf."""

from __future__ import annotations

from typing import Any

from onnxq.graph import Graph, Node
from onnxq.passes.base import PASSES, PassResult
from onnxq.passes.edits import node_line
from onnxq.passes.recognize_gelu import recognize_gelu

_OPSET = 20


@PASSES.register("gelu_as_operator")
def gelu_as_operator(graph: Graph) -> PassResult:
    """Units of kind Gelu -> Gelu(x), approximate = tanh where they are written with Tanh; raises the opset to 20.

    Not for bfloat16 and float64, which onnxruntime has no Gelu for; with nothing else the opset stays.
    """
    result = PassResult()
    recognize_gelu(graph)
    convertible = []
    for unit in (unit for unit in graph.units.all() if unit.kind == "Gelu"):
        nodes = [graph.node(name) for name in unit.nodes]
        kind = graph.dtype(_source(graph, nodes))
        if kind is not None and kind.name in ("float32", "float16"):
            convertible.append(unit)
        else:
            result.declined.append(
                node_line(nodes[-1], f"ends a Gelu in {kind}, which onnxruntime has no operator for")
            )
    if convertible:
        graph.raise_opset(_OPSET)
    for unit in convertible:
        nodes = [graph.node(name) for name in unit.nodes]
        last, source = nodes[-1], _source(graph, nodes)
        tanh = any(node.op == "Tanh" for node in nodes)
        graph.units.forget(last.name)
        last.op, last.attrs, last.attr_types = "Gelu", {"approximate": "tanh"} if tanh else {}, {}
        last.inputs = [source]
        for node in nodes[:-1]:
            graph.origins.node_became(node.name, last.name)
        graph.remove(nodes[:-1])
        result.changed.append(node_line(last, f"is a Gelu for {len(nodes)} nodes"))
    return result


def _source(graph: Graph, nodes: list[Node]) -> Any:
    """The one tensor that the nodes of a unit read from outside."""
    made = {id(tensor) for node in nodes for tensor in node.outputs}
    sources = {t.name: t for node in nodes for t in node.inputs if id(t) not in made and not graph.is_constant(t)}
    (source,) = sources.values()
    return source
