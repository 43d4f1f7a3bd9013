"""A part of a graph as a graph of its own: some nodes between given tensors, in time that depends on the part alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import onnx
import onnx_graphsurgeon as gs

from onnxq.collector import collector_paused
from onnxq.graph.duplicate import duplicate
from onnxq.graph.graph import Graph
from onnxq.graph.names import Names
from onnxq.graph.nodes import Constant, Scope, bodies
from onnxq.graph.sort import captured


def part_of(graph: Graph, nodes: Sequence[gs.Node], inputs: Sequence[str], outputs: Sequence[str]) -> Graph:
    """The nodes (of the main graph, in order) with `inputs` and `outputs` in the place of the model's.

    Names stay as they are, the values of constants are shared, what is changed in the part does not change the graph.
    Constants that the nodes read, bodies included, come along; every other tensor that they read must be made by one
    of them or be among `inputs`. Units are left behind.
    """
    scope = Scope(graph.gs.name, "", graph.gs.opset)
    read = [t for node in nodes for t in (*node.inputs, *(captured(node) if bodies(node) else ()))]
    scope.initializers = {
        t.name: t for t in read if isinstance(t, Constant) and (t.scope is None or t.scope is graph.gs)
    }
    given = {node.name for node in nodes}
    makers = {t.name: graph.producer(t) for t in read if t.inputs and graph.is_constant(t)}
    constant_nodes = {node.name: node for node in makers.values() if node is not None and node.name not in given}
    main = [node for node in constant_nodes.values() if graph.scope_of(node) is graph.gs]
    scope.nodes = [*main, *nodes]
    scope.inputs = [graph.tensor(name) for name in inputs]
    scope.outputs = [graph.tensor(name) for name in outputs]
    header = onnx.ModelProto()
    header.CopyFrom(graph.header)
    with collector_paused():
        twin = duplicate(scope)
        for constant in twin.initializers.values():
            constant.scope = None
        return Graph(header, twin, Names(), None)


def front_of(graph: Graph, tensors: Collection[str]) -> Graph:
    """What a sorted graph computes up to some tensors of its main graph, with these as outputs; all inputs stay."""
    needed, nodes = set(tensors), []
    for node in reversed(graph.gs.nodes):
        if any(tensor.name in needed for tensor in node.outputs):
            nodes.append(node)
            inside = captured(node) if bodies(node) else ()
            needed.update(tensor.name for tensor in (*node.inputs, *inside))
    made = [name for name in dict.fromkeys(tensors) if name not in graph.input_names]
    return part_of(graph, nodes[::-1], graph.input_names, made)
