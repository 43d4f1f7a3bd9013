"""Finding something to change in a model: graphs at every depth, nodes, tensors."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import onnx


def graphs(model: onnx.ModelProto) -> Iterator[Any]:
    """The graph, the bodies in it, and functions: everything that has nodes."""
    waiting: list[Any] = [model.graph, *model.functions]
    while waiting:
        graph = waiting.pop()
        yield graph
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    waiting.append(attribute.g)
                waiting.extend(attribute.graphs)


def any_graph(model: onnx.ModelProto, rng: Random) -> Any:
    """Mostly the graph itself; bodies and functions as often as they have a chance to matter."""
    found = list(graphs(model))
    return found[0] if rng.random() < 0.4 else rng.choice(found)


def any_node(model: onnx.ModelProto, rng: Random) -> onnx.NodeProto | None:
    nodes = any_graph(model, rng).node or model.graph.node
    return rng.choice(nodes) if nodes else None


def tensors(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    """Initializers and tensors of attributes, at every depth."""
    found: list[onnx.TensorProto] = []
    for graph in graphs(model):
        found.extend(getattr(graph, "initializer", ()))
        for node in graph.node:
            found.extend(attribute.t for attribute in node.attribute if attribute.HasField("t"))
    return found


def any_tensor(model: onnx.ModelProto, rng: Random) -> onnx.TensorProto | None:
    found = tensors(model)
    return rng.choice(found) if found else None


def tensor_names(graph: Any) -> list[str]:
    """Every name of a tensor in a graph, made or read."""
    values = [value for node in graph.node for value in (*node.input, *node.output)]
    return sorted({*values, *(tensor.name for tensor in getattr(graph, "initializer", ()))})
