"""What `onnxq inspect` reports about a model file, gathered without reading weights; only `--shape` may run it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import onnx

from onnxq.cli.shapes import read_shapes
from onnxq.costs import MULTIPLYING
from onnxq.errors import OnnxqError
from onnxq.graph import Graph
from onnxq.graph.element_types import numpy_dtype, stored_size
from onnxq.graph.load import open_model
from onnxq.graph.placeholders import is_placeholder, shared_placeholders
from onnxq.graph.protos import data_bytes, external_files, nodes_of, tensors_of
from onnxq.graph.values import checked_shape
from onnxq.page.work import macs_json, macs_of_run, open_sizes
from onnxq.runtime.random_data import random_dataset, random_shapes
from onnxq.runtime.session import input_infos
from onnxq.strip import is_dynamic, is_quantized
from onnxq.targets import BACKENDS

KNOWN_DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft")
"""Domains with operators that onnxruntime can run."""

WRITTEN_OPSET = 13
"""Per-channel QuantizeLinear needs this opset, so older models are raised to it."""


LONGEST_SIZE = 40
"""Letters of a size that is shown twice; exporters write whole formulas."""


@dataclass(frozen=True)
class Port:
    """An input or output; dimensions are numbers, names, or "?" where nothing is said; shape None: unknown rank."""

    name: str
    type: str
    shape: tuple[int | str, ...] | None

    @property
    def dynamic(self) -> list[str]:
        axes = [(i, dim) for i, dim in enumerate(self.shape or ()) if isinstance(dim, str)]
        return [f"axis {i} ({dim if len(dim) <= LONGEST_SIZE else 'computed'})" for i, dim in axes]

    @property
    def shape_text(self) -> str:
        return "unknown rank" if self.shape is None else "[" + ", ".join(str(dim) for dim in self.shape) + "]"


@dataclass(frozen=True)
class ModelFacts:
    """A model file in plain values; counts include the bodies of If, Loop and Scan and local functions."""

    path: str
    file_bytes: int
    ir_version: int
    producer: str
    opsets: dict[str, int]
    metadata: dict[str, str]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    operators: dict[str, int]
    stored_tensors: int
    parameters: int
    parameter_bytes: int
    parameters_by_type: dict[str, int]
    external_files: tuple[str, ...]
    quantized: tuple[str, ...]
    blocking: tuple[str, ...]
    remarks: tuple[str, ...]
    macs: int | None = None
    assumed_one: tuple[str, ...] = ()
    largest: tuple[Layer, ...] = ()


@dataclass(frozen=True)
class Layer:
    """A layer that multiplies: its MACs, None where shapes are not known, and the numbers that it stores."""

    name: str
    operator: str
    macs: int | None
    parameters: int


LARGEST = 8
"""Layers that are listed."""


def model_facts(path: Path, shapes: Sequence[str] = ()) -> ModelFacts:
    """Look at a model file, its work for inputs of these `shapes`; only a file that is no model at all is an error."""
    model = open_model(path)
    operators = Counter(f"{node.domain}.{node.op_type}" if node.domain else node.op_type for node in nodes_of(model))
    by_type: Counter[str] = Counter()
    tensors = stored_bytes = 0
    for tensor in tensors_of(model):
        shape = checked_shape(tensor.dims, numpy_dtype(tensor.data_type, tensor.name), tensor.name)
        by_type[_type_name(tensor.data_type)] += prod(shape)
        stored_bytes += 0 if tensor.data_type == onnx.TensorProto.STRING else stored_size(tensor.data_type, shape)
        tensors += 1
    files = external_files(model, path.parent)
    stored = {tensor.name for tensor in model.graph.initializer}
    inputs = tuple(_port(info) for info in model.graph.input if info.name not in stored)
    blocking, graph = _blocking(model, path, inputs, files, operators)
    macs, chosen = (None, []) if graph is None else _macs(graph, shapes)
    return ModelFacts(
        path=str(path),
        file_bytes=path.stat().st_size + data_bytes(files),
        ir_version=model.ir_version,
        producer=f"{model.producer_name} {model.producer_version}".strip(),
        opsets={entry.domain: entry.version for entry in model.opset_import},
        metadata={entry.key: entry.value for entry in model.metadata_props},
        inputs=inputs,
        outputs=tuple(_port(info) for info in model.graph.output),
        operators=dict(operators.most_common()),
        stored_tensors=tensors,
        parameters=sum(by_type.values()),
        parameter_bytes=stored_bytes,
        parameters_by_type=dict(by_type.most_common()),
        external_files=tuple(str(file) for file in files),
        quantized=tuple(f"{count} {name}" for name, count in _quantized(operators).items()),
        blocking=tuple(blocking),
        remarks=(*_remarks(model, operators, path), *_dimension_remarks(model, inputs), *chosen),
        macs=None if macs is None else sum(macs.values()),
        assumed_one=() if graph is None or macs is None or shapes else tuple(open_sizes(graph)),
        largest=() if graph is None else _largest(graph, macs or {}),
    )


def _macs(graph: Graph, shapes: Sequence[str]) -> tuple[dict[str, int] | None, list[str]]:
    """Node -> MACs, as far as shapes tell; with `shapes`, also which sizes had to be chosen for others."""
    if not shapes:
        return macs_json(graph, None, {}, assumed=1), []
    sizes, notes = random_shapes(graph, read_shapes(shapes, graph))
    found = macs_of_run(graph, next(iter(random_dataset(input_infos(graph), 1, shapes=sizes))))
    return found, notes if found is not None else [*notes, "MACs are unknown: the model does not run with that --shape"]


def _largest(graph: Graph, macs: Mapping[str, int]) -> tuple[Layer, ...]:
    """The layers with the most work; where that is not known, those with the most numbers."""
    layers = []
    for node in graph.gs.nodes:
        if node.op in MULTIPLYING and not node.domain:
            shapes = [graph.shape(tensor) for tensor in node.inputs if graph.is_constant(tensor)]
            stored = sum(prod(size for size in shape or () if isinstance(size, int)) for shape in shapes)
            layers.append(Layer(str(node.name), str(node.op), macs.get(str(node.name)), stored))
    return tuple(sorted(layers, key=lambda layer: (-(layer.macs or 0), -layer.parameters))[:LARGEST])


def _port(info: onnx.ValueInfoProto) -> Port:
    kind = info.type.WhichOneof("value")
    if kind != "tensor_type":
        return Port(info.name, (kind or "unknown").removesuffix("_type"), None)
    tensor = info.type.tensor_type
    if not tensor.HasField("shape"):
        return Port(info.name, _type_name(tensor.elem_type), None)
    dims = tuple(dim.dim_value if dim.HasField("dim_value") else dim.dim_param or "?" for dim in tensor.shape.dim)
    return Port(info.name, _type_name(tensor.elem_type), dims)


def _dimension_remarks(model: onnx.ModelProto, inputs: tuple[Port, ...]) -> list[str]:
    """Names of free dimensions that stand for several sizes, or may: onnxruntime takes equal names for equal sizes."""
    placeholders = shared_placeholders(model.graph)
    outputs = [_port(info) for info in model.graph.output]
    found = [
        f"{count} free dimensions are called '{name}', which is no name: each is taken for a size of its own"
        for name, count in placeholders.items()
    ]
    for port in (*inputs, *outputs):
        free = Counter(dim for dim in port.shape or () if isinstance(dim, str) and not is_placeholder(dim))
        found += [
            f"{count} dimensions of '{port.name}' are called '{name}': onnxruntime takes them for equal. If they are "
            "not, export the model with names of their own"
            for name, count in free.items()
            if count > 1
        ]
    return found


def _type_name(element_type: int) -> str:
    try:
        return str(onnx.TensorProto.DataType.Name(element_type)).lower()
    except ValueError:  # a type newer than the installed onnx
        return f"type {element_type}"


def _quantized(operators: Counter[str]) -> dict[str, int]:
    """Operators of quantization, with their counts."""
    return {name: count for name, count in operators.items() if is_quantized(_plain(name))}


def _plain(name: str) -> str:
    """An operator's name without its domain."""
    return name.rpartition(".")[2]


def _quantized_already(found: Mapping[str, int], path: Path) -> str:
    """How a model is quantized that is given, and the way to a float one."""
    pairs = sum(count for name, count in found.items() if _plain(name) in ("QuantizeLinear", "DequantizeLinear"))
    dynamic = sum(count for name, count in found.items() if is_dynamic(_plain(name)))
    others = sum(found.values()) - pairs - dynamic
    counts = (
        (pairs, "QuantizeLinear and DequantizeLinear"),
        (dynamic, "dynamic"),
        (others, "other quantized operators"),
    )
    parts = ", ".join(f"{count} {what}" for count, what in counts if count)
    return (
        f"the model is quantized already, at least in part ({parts}): those nodes are left as they are. "
        f"'onnxq strip {path} -o float.onnx' makes a float model of it that can be quantized anew"
    )


def _blocking(
    model: onnx.ModelProto, path: Path, inputs: tuple[Port, ...], files: list[Path], operators: Counter[str]
) -> tuple[list[str], Graph | None]:
    """Why `onnxq quantize` would refuse this file, as far as that shows without data; and the graph, if it can be."""
    found = [f"the external data file {file} does not exist" for file in files if not os.path.isfile(file)]
    found += [
        f"input '{port.name}' is not a tensor of known type and rank, so it cannot be fed"
        for port in inputs
        if port.shape is None
    ]
    if not any(_has_rule(name) for name in operators):
        found.append("no backend has a rule for any of its operators")
    if found:
        return found, None
    try:
        graph = Graph.from_model(model, path=path.resolve())
        graph.raise_opset(WRITTEN_OPSET)
        graph.infer_shapes()
    except OnnxqError as error:
        return [str(error)], None
    return [], graph


def _has_rule(op: str) -> bool:
    return any(backend.rules_for(op) for _, backend in BACKENDS.items())


def _remarks(model: onnx.ModelProto, operators: Counter[str], path: Path) -> list[str]:
    found = []
    quantized = _quantized(operators)
    if quantized:
        found.append(_quantized_already(quantized, path))
    foreign = [name for name in operators if name.rpartition(".")[0] not in KNOWN_DOMAINS]
    if foreign:
        found.append(f"onnxruntime may have no implementation of {', '.join(foreign)}: calibration would not run")
    if model.functions:
        found.append(f"{len(model.functions)} local functions are inlined before anything else")
    versions = [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    version = max(versions, default=WRITTEN_OPSET)
    if version < WRITTEN_OPSET:
        found.append(f"opset {version} is raised to {WRITTEN_OPSET} where scales per channel are written")
    return found
