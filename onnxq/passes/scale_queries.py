"""Scale the queries of an attention instead of its scores.

    MatMul(Q, K) -> Mul or Div by one number -> ... -> Softmax   becomes   MatMul(Q * number, K) -> ... -> Softmax

where ... adds masks or chooses by them. Scores in few bits or half precision then have the size that the softmax reads,
and quantizers stand directly in front of the products. Scores that somebody else reads must not be rewritten, nor a
factor of several numbers, nor products without a softmax behind them.
"""

from __future__ import annotations

from onnxq.graph import Graph, Node
from onnxq.passes.base import PASSES, PassResult
from onnxq.passes.edits import bypass, node_line, scalar

_MASKS = ("Add", "Where", "Max", "Cast", "Clip")
_STEPS = 4
"""Nodes that may stand between the scale and the softmax."""


@PASSES.register("scale_queries")
def scale_queries(graph: Graph) -> PassResult:
    """Move the factor of attention scores in front of the product that makes them."""
    result, left = PassResult(), []
    for node in graph.nodes():
        if node.op not in ("Mul", "Div") or node.domain:
            continue
        found = _scores(graph, node)
        if found is None or not _reaches_softmax(graph, node):
            continue
        product, port = found
        query, factor = product.inputs[0], node.inputs[1 - port]
        reason = bypass(graph, node) if port == 0 else _bypass_second(graph, node)
        if reason is not None:
            result.declined.append(node_line(node, reason))
            continue
        scope = graph.scope_of(product)
        scaled = graph.add_variable(f"{query.name}_scaled", query.dtype, query.shape)
        graph.add_node(node.op, [query, factor], [scaled], name=f"{node.name}_queries", scope=scope)
        product.inputs[0] = scaled
        graph.origins.node_removed(node.name, f"moved in front of '{product.name}'")
        left.append(node)
        result.changed.append(node_line(node, f"scales the queries of '{product.name}' instead of its scores"))
    graph.remove(left)
    return result


def _scores(graph: Graph, node: Node) -> tuple[Node, int] | None:
    """The product that a node scales by one number, and the port that it comes in at."""
    for port in (0, 1) if node.op == "Mul" else (0,):
        product = graph.producer(node.inputs[port])
        if product is None or product.op != "MatMul" or scalar(graph, node.inputs[1 - port]) is None:
            continue
        scores = product.outputs[0]
        alone = len(graph.consumers(scores)) == 1 and not graph.is_output(scores)
        computed = not any(graph.is_constant(tensor) for tensor in product.inputs)
        if alone and computed and graph.scope_of(product) is graph.scope_of(node):
            return product, port
    return None


def _bypass_second(graph: Graph, node: Node) -> str | None:
    node.inputs[0], node.inputs[1] = node.inputs[1], node.inputs[0]
    return bypass(graph, node)


def _reaches_softmax(graph: Graph, node: Node) -> bool:
    """Whether all that reads the scores is one softmax, behind masks at most."""
    for _ in range(_STEPS):
        uses = graph.consumers(node.outputs[0])
        if len(uses) != 1 or graph.is_output(node.outputs[0]):
            return False
        node = uses[0].node
        if node.op == "Softmax":
            return True
        if node.op not in _MASKS:
            return False
    return False
