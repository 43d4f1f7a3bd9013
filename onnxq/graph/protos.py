"""A model file looked at as it is, without its weights: nodes and tensors with bodies and functions, files on disk."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx

from onnxq.graph.element_types import stored_size
from onnxq.graph.load import parse_model


def nodes_of(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Every node: of the main graph, of bodies at any depth, and of local functions once each."""
    pending = [iter(model.graph.node), *(iter(function.node) for function in model.functions)]
    while pending:
        for node in pending.pop():
            yield node
            pending.extend(iter(body.node) for body in bodies_of(node))


def bodies_of(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs in a node's attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def tensors_of(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every stored tensor: initializers, sparse ones by their values, and what Constant nodes hold."""
    graphs = [model.graph, *(body for node in nodes_of(model) for body in bodies_of(node))]
    for graph in graphs:
        yield from graph.initializer
        yield from (sparse.values for sparse in graph.sparse_initializer)
    for node in nodes_of(model):
        if node.op_type == "Constant":
            yield from (attribute.t for attribute in node.attribute if attribute.HasField("t"))


def external_files(model: onnx.ModelProto, folder: Path) -> list[Path]:
    """The files beside a model that hold its weights, each once; they need not exist."""
    names = dict.fromkeys(
        entry.value
        for tensor in tensors_of(model)
        if tensor.data_location == onnx.TensorProto.EXTERNAL
        for entry in tensor.external_data
        if entry.key == "location"
    )
    return [folder / name for name in names]


def data_bytes(files: Iterable[Path]) -> int:
    """Size on disk of those of the files that exist."""
    return sum(os.path.getsize(file) for file in files if os.path.isfile(file))


def file_bytes(path: Path) -> int:
    """Size on disk of a model file with its external data."""
    files = external_files(parse_model(path), path.parent)
    return path.stat().st_size + data_bytes(files)


def stored_bytes(path: Path) -> Counter[str]:
    """What the tensors of a model take by their type, external data included, which is not read."""
    found: Counter[str] = Counter()
    for tensor in tensors_of(parse_model(path)):
        if tensor.data_type != onnx.TensorProto.STRING:
            kind = onnx.TensorProto.DataType.Name(tensor.data_type).lower()
            found[kind] += stored_size(tensor.data_type, tuple(tensor.dims))
    return found
