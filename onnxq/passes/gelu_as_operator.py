"""Turn a recognised Gelu into the operator of opset 20, for targets that compute it as one and have no Erf."""

from __future__ import annotations

from onnxq.graph import Graph
from onnxq.passes.base import PASSES, PassResult
from onnxq.passes.edits import node_line
from onnxq.passes.recognize_gelu import recognize_gelu

_OPSET = 20


@PASSES.register("gelu_as_operator")
def gelu_as_operator(graph: Graph) -> PassResult:
    """Units of kind Gelu -> Gelu(x), approximate = tanh where they are written with Tanh; raises the opset to 20.

    Not for bfloat16 and float64, which onnxruntime has no Gelu for.
    """
    result = PassResult()
    recognize_gelu(graph)
    units = [unit for unit in graph.units.all() if unit.kind == "Gelu"]
    if not units:
        return result
    graph.raise_opset(_OPSET)
    for unit in units:
        nodes = [graph.node(name) for name in unit.nodes]
        last = nodes[-1]
        made = {id(tensor) for node in nodes for tensor in node.outputs}
        sources = {t.name: t for node in nodes for t in node.inputs if id(t) not in made and not graph.is_constant(t)}
        (source,) = sources.values()
        tanh = any(node.op == "Tanh" for node in nodes)
        kind = graph.dtype(source)
        if kind is None or kind.name not in ("float32", "float16"):
            result.declined.append(node_line(last, f"ends a Gelu in {kind}, which onnxruntime has no operator for"))
            continue
        graph.units.forget(last.name)
        last.op, last.attrs, last.attr_types = "Gelu", {"approximate": "tanh"} if tanh else {}, {}
        last.inputs = [source]
        for node in nodes[:-1]:
            graph.origins.node_became(node.name, last.name)
        graph.remove(nodes[:-1])
        result.changed.append(node_line(last, f"is a Gelu for {len(nodes)} nodes"))
    return result
