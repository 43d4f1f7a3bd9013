"""Layers by their names: an ONNX node, a Keras layer, or the module that a node was exported from.

tf2onnx keeps the names of Keras layers as scopes of nodes and tensors. The layer conv1 of the block stem is in
'model/stem/conv1/BiasAdd', and is called conv1, stem/conv1 or model/stem/conv1; stem is all that is inside of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from onnxq.compat.module_paths import module_paths
from onnxq.compat.modules import nodes_of_module
from onnxq.errors import ConfigError, did_you_mean
from onnxq.graph import Graph, Node
from onnxq.targets.amd.dialect.layers import computes_floats


class Names:
    """What the nodes of a graph are called; layers and modules are looked up once."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._paths = module_paths(graph)
        self._layers = {node.name: tuple(dict.fromkeys(self._layers_of(node))) for node in graph.nodes()}
        self._every = {
            node.name: (str(node.name), *self._modules(node), *self._layers[node.name]) for node in graph.nodes()
        }

    def of(self, node: Node) -> tuple[str, ...]:
        """The name of a node, and the layers and modules it came from, where the file knows them."""
        return self._every[node.name]

    def _modules(self, node: Node) -> Iterator[str]:
        return (origin.path for origin in self._paths.get(node.name, ()) if origin.path)

    def called(self, name: str, where: str) -> list[str]:
        """The nodes behind the name of a layer; an unknown name is an error with the nearest."""
        if self._graph.has_node(name):
            return [name]
        found = [node for node in self._graph.nodes() if name in self._layers[node.name]]
        if found:
            computing = [node for node in found if computes_floats(self._graph, node)]
            return [str(node.name) for node in computing or found]
        layers = list(dict.fromkeys(layer for several in self._layers.values() for layer in several))
        if not layers:
            return nodes_of_module(self._graph, name, where)
        shown = ", ".join(layer for layer in layers if "/" not in layer)
        near = did_you_mean(name, [*layers, *(str(node.name) for node in self._graph.nodes())])
        raise ConfigError(f"{where}: no layer and no node is called '{name}'.{near} Layers: {shown}")

    def _layers_of(self, node: Node) -> Iterator[str]:
        """Every run of scopes in the name of a node and of its result; names of PyTorch begin with a slash."""
        if node.name in self._paths:
            return
        result = str(node.outputs[0].name) if node.outputs else ""
        own = str(node.name)
        for name in (result,) if own.endswith(result) and own != result else (own, result):
            scopes = [] if name.startswith("/") else name.split("/")[:-1]
            for first in range(len(scopes)):
                for last in range(first + 1, len(scopes) + 1):
                    yield "/".join(scopes[first:last])
