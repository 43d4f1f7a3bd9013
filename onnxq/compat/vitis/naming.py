"""Layers by their names: the name of an ONNX node, or the path of the module that it was exported from."""

from __future__ import annotations

from onnxq.compat.module_paths import module_paths
from onnxq.compat.modules import nodes_of_module
from onnxq.graph import Graph, Node


class Names:
    """What the nodes of a graph are called; the modules are looked up once."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._paths = module_paths(graph)

    def of(self, node: Node) -> list[str]:
        """The name of a node, and the modules it came from, where the file knows them."""
        return [str(node.name), *(origin.path for origin in self._paths.get(node.name, ()) if origin.path)]

    def called(self, name: str, where: str) -> list[str]:
        """The nodes behind the name of a layer; an unknown name is an error with the nearest."""
        return [name] if self._graph.has_node(name) else nodes_of_module(self._graph, name, where)
