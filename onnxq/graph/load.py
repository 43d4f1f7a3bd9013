"""From a file to the parts of a Graph: opened, functions inlined, opset imports in order, everything named."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import onnx

from onnxq.errors import ModelError
from onnxq.graph.external import ExternalFiles
from onnxq.graph.functions import inline_functions
from onnxq.graph.names import Names
from onnxq.graph.nodes import Scope
from onnxq.graph.placeholders import shared_placeholders
from onnxq.graph.read import GraphReader
from onnxq.graph.signatures import DEFAULT_DOMAINS, check_signatures
from onnxq.graph.utf8 import check_text


@dataclass(frozen=True)
class ModelParts:
    """What reading a model yields; `given_names` maps node names that onnxq made up to the ones in the file.

    `remarks` are notes for the user on what the file says and is not taken at its word.
    """

    header: onnx.ModelProto
    main: Scope
    names: Names
    given_names: dict[str, str]
    external: bool
    remarks: list[str]


def open_model(path: Path) -> onnx.ModelProto:
    """Parse a model file whose names and texts are to be text, leaving external data alone."""
    model = parse_model(path)
    check_text(model, str(path))
    return model


def parse_model(path: Path) -> onnx.ModelProto:
    """Parse a model file, whatever its texts are."""
    if path.is_dir():
        raise ModelError(f"{path} is a folder; give the path of the model file in it")
    if not path.is_file():
        raise ModelError(f"no model file at {path}")
    if path.stat().st_size == 0:
        raise ModelError(f"{path} is an empty file")
    try:
        return onnx.load(str(path), load_external_data=False)
    except (OSError, MemoryError):
        raise  # of the machine, not of the file's content
    except Exception as error:  # protobuf raises different classes in its different implementations
        if "MaxDepth" in str(error) or "ecursion" in str(error):
            raise ModelError(
                f"{path} is not a readable ONNX model: its bodies of If, Loop and Scan are nested deeper than protobuf "
                f"reads, which is about 30 levels ({error}). Write the model with fewer levels"
            ) from error
        raise ModelError(
            f"{path} is not a readable ONNX model: {error}. It is another kind of file, or a part of it is missing; "
            "export or copy it again"
        ) from error


def read_model(model: onnx.ModelProto, path: Path | None) -> ModelParts:
    """Build the graph of a model; `path` says where it came from."""
    where = check_model(model, path)
    if model.functions:
        model = inline_functions(model, where)
    names = _names_in(model.graph)
    header = _header(model, where)
    opset = max(entry.version for entry in header.opset_import if entry.domain == "")
    files = ExternalFiles(path)
    placeholders = shared_placeholders(model.graph)
    reader = GraphReader(files, Names(names), opset, placeholders)
    main = reader.graph(model.graph)
    remarks = [
        f"{count} free dimensions are called '{name}', which is no name: each is taken for a size of its own"
        for name, count in placeholders.items()
    ]
    return ModelParts(header, main, reader.names, reader.given_node_names, files.used, remarks)


def check_model(model: onnx.ModelProto, path: Path | None) -> str:
    """Refuse what onnx and onnxruntime do not survive; returns what errors call the model."""
    where = f"{path}" if path else "the model"
    if not model.HasField("graph") or not model.opset_import:
        raise ModelError(f"{where} has no graph or no opset: it is not a complete ONNX model")
    check_signatures(model, where)
    return where


def _header(model: onnx.ModelProto, where: str) -> onnx.ModelProto:
    """Everything but graph and functions; the default domain is imported once and spelled ''."""
    header = onnx.ModelProto()
    for field, value in model.ListFields():
        if field.name in ("graph", "functions", "opset_import"):
            continue
        if isinstance(value, str | int):
            setattr(header, field.name, value)
        else:
            getattr(header, field.name).MergeFrom(value)
    versions: dict[str, int] = {}
    for entry in model.opset_import:
        domain = "" if entry.domain in DEFAULT_DOMAINS else entry.domain
        versions[domain] = max(entry.version, versions.get(domain, 0))
    if "" not in versions:
        raise ModelError(f"{where} does not import the default ONNX operator set (domain '')")
    for domain, version in versions.items():
        header.opset_import.add(domain=domain, version=version)
    return header


def _names_in(proto: onnx.GraphProto) -> set[str]:
    """Every tensor and node name of the file, bodies included."""
    names: set[str] = set()
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
