"""From a file to the parts of a Graph: opened, functions inlined, opset imports in order, everything named."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from onnx import inliner, shape_inference

from onnxq.errors import ModelError
from onnxq.graph.external import ExternalFiles
from onnxq.graph.names import Names
from onnxq.graph.nodes import Scope
from onnxq.graph.read import GraphReader

_DEFAULT_DOMAIN = ("", "ai.onnx")


@dataclass(frozen=True)
class ModelParts:
    """What reading a model yields; `given_names` maps node names that onnxq made up to the ones in the file."""

    header: onnx.ModelProto
    main: Scope
    names: Names
    given_names: dict[str, str]
    external: bool


def open_model(path: Path) -> onnx.ModelProto:
    """Parse a model file, leaving external data alone."""
    if path.is_dir():
        raise ModelError(f"{path} is a folder; give the path of the model file in it")
    if not path.is_file():
        raise ModelError(f"no model file at {path}")
    if path.stat().st_size == 0:
        raise ModelError(f"{path} is an empty file")
    try:
        return onnx.load(str(path), load_external_data=False)
    except (OSError, MemoryError):  # of the machine, not of the model
        raise
    except Exception as error:  # protobuf raises different classes in its different implementations
        raise ModelError(f"{path} is not a readable ONNX model: {error}") from error


def read_model(model: onnx.ModelProto, path: Path | None) -> ModelParts:
    """Build the graph of a model; `path` says where it came from."""
    where = f"{path}" if path else "the model"
    if not model.HasField("graph") or not model.opset_import:
        raise ModelError(f"{where} has no graph or no opset: it is not a complete ONNX model")
    if model.functions:
        model = _inline_functions(model, where)
    names = _names_in(model.graph)
    for name in names:
        if isinstance(name, bytes):
            raise ModelError(f"{where} has a tensor or node called {name!r}, which is not UTF-8 text; rename it")
    header = _header(model, where)
    opset = max(entry.version for entry in header.opset_import if entry.domain == "")
    files = ExternalFiles(path)
    reader = GraphReader(files, Names(names), opset)
    main = reader.graph(model.graph)
    return ModelParts(header, main, reader.names, reader.given_node_names, files.used)


def _inline_functions(model: onnx.ModelProto, where: str) -> onnx.ModelProto:
    try:
        if _mixes_opsets(model):  # the inliner converts a function only where it knows the types around it
            model = shape_inference.infer_shapes(model)
        return inliner.inline_local_functions(model, convert_version=True)
    except Exception as error:  # the inliner reports everything as one of several C++ exceptions
        raise ModelError(f"the local functions of {where} cannot be inlined: {error}") from error


def _mixes_opsets(model: onnx.ModelProto) -> bool:
    """Whether a function is written for another version of the default operator set than the model."""
    own = {entry.version for entry in model.opset_import if entry.domain in _DEFAULT_DOMAIN}
    functions = (entry for function in model.functions for entry in function.opset_import)
    return any(entry.version not in own for entry in functions if entry.domain in _DEFAULT_DOMAIN)


def _header(model: onnx.ModelProto, where: str) -> onnx.ModelProto:
    """Everything but graph and functions; the default domain is imported once and spelled ''."""
    header = onnx.ModelProto()
    for field, value in model.ListFields():
        if field.name in ("graph", "functions", "opset_import"):
            continue
        if isinstance(value, bytes):
            raise ModelError(f"{field.name} of {where} is not UTF-8 text")
        if isinstance(value, str | int):
            setattr(header, field.name, value)
        else:
            getattr(header, field.name).MergeFrom(value)
    versions: dict[str, int] = {}
    for entry in model.opset_import:
        domain = "" if entry.domain in _DEFAULT_DOMAIN else entry.domain
        versions[domain] = max(entry.version, versions.get(domain, 0))
    if "" not in versions:
        raise ModelError(f"{where} does not import the default ONNX operator set (domain '')")
    for domain, version in versions.items():
        header.opset_import.add(domain=domain, version=version)
    return header


def _names_in(proto: onnx.GraphProto) -> set[Any]:
    """Every tensor and node name of the file, bodies included; bytes where it is not text."""
    names: set[Any] = set()
    pending = [proto]
    while pending:
        graph = pending.pop()
        names.update(tensor.name for tensor in graph.initializer)
        names.update(sparse.values.name for sparse in graph.sparse_initializer)
        names.update(info.name for info in graph.input)
        for node in graph.node:
            names.add(node.name)
            names.update(node.output)
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    pending.append(attribute.g)
                pending.extend(attribute.graphs)
    return names
