"""graphsurgeon graph -> ModelProto and files; large models go to disk one tensor at a time.

Each file is first written under a temporary name in the target folder and then renamed, data before model, so that a
killed run never leaves half a file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from onnxq.errors import ModelError
from onnxq.files import replace_file
from onnxq.graph.nodes import bodies
from onnxq.graph.values import ExternalValues, LazyValues, ProtoValues, onnx_dtype, raw_bytes, stored_size

PROTOBUF_LIMIT = 2**31 - 2**24
"""Models are kept inside one protobuf below this size; it leaves room for everything that is not a weight."""

_EXTERNAL_FROM_BYTES = 1024
_ALIGNMENT = 64

StoreTensor = Callable[[TensorProto, "np.ndarray | LazyValues"], None]
"""Puts the values into (or beside) a TensorProto that has its name, type and dims already."""


def graph_to_proto(graph: gs.Graph, store: StoreTensor, node_name: Callable[[str], str], root: bool = True) -> onnx.GraphProto:
    proto = onnx.GraphProto(name=graph.name or "", doc_string=graph.doc_string or "")
    for key, value in getattr(graph, "metadata", {}).items():
        proto.metadata_props.add(key=key, value=value)
    proto.node.extend(node_to_proto(node, store, node_name) for node in graph.nodes)

    constants = _constants(graph, root)
    present = set(constants)
    declared = {position: info for name, (position, info) in getattr(graph, "overridable", {}).items() if name in present}
    plain = iter([_declaration(tensor) for tensor in graph.inputs])
    for position in range(len(graph.inputs) + len(declared)):
        proto.input.append(declared[position] if position in declared else next(plain))
    proto.output.extend(_declaration(tensor) for tensor in graph.outputs)
    for constant in constants.values():
        proto.initializer.append(tensor_to_proto(constant.name, constant._values, store))

    shown = {tensor.name for tensor in [*graph.inputs, *graph.outputs]}
    for node in graph.nodes:
        for tensor in node.outputs:
            if tensor.name and tensor.name not in shown and isinstance(tensor, gs.Variable) and _has_type(tensor):
                shown.add(tensor.name)
                proto.value_info.append(_declaration(tensor))
    alive = shown | present
    proto.quantization_annotation.extend(a for a in getattr(graph, "quantization_annotation", ()) if a.tensor_name in alive)
    return proto


def _constants(graph: gs.Graph, root: bool) -> dict[str, gs.Constant]:
    """Initializers of `graph` in their order; those without a home live in the main graph, visible to all bodies."""
    found = {c.name: c for c in getattr(graph, "initializers", {}).values() if isinstance(c, gs.Constant)}
    if root:
        pending = [graph]
        while pending:
            current = pending.pop()
            for node in current.nodes:
                for tensor in node.inputs:
                    if isinstance(tensor, gs.Constant) and getattr(tensor, "scope", None) is None:
                        found.setdefault(tensor.name, tensor)
                pending.extend(bodies(node))
            for tensor in current.outputs:
                if isinstance(tensor, gs.Constant) and getattr(tensor, "scope", None) is None:
                    found.setdefault(tensor.name, tensor)
    return found


def node_to_proto(node: gs.Node, store: StoreTensor, node_name: Callable[[str], str]) -> onnx.NodeProto:
    proto = onnx.NodeProto(
        op_type=node.op,
        name=node_name(node.name),
        domain=node.domain or "",
        input=[tensor.name for tensor in node.inputs],
        output=[tensor.name for tensor in node.outputs],
        doc_string=getattr(node, "doc_string", ""),
        overload=getattr(node, "overload", ""),
    )
    for key, value in getattr(node, "metadata", {}).items():
        proto.metadata_props.add(key=key, value=value)
    proto.device_configurations.extend(getattr(node, "device_configurations", ()))
    types = getattr(node, "attr_types", {})
    proto.attribute.extend(_attribute(k, v, types.get(k), store, node_name) for k, v in node.attrs.items())
    return proto


def _attribute(name: str, value: Any, kind: int | None, store: StoreTensor, node_name: Callable[[str], str]) -> AttributeProto:
    if isinstance(value, AttributeProto):
        return value
    if isinstance(value, gs.Constant):
        return AttributeProto(name=name, type=AttributeProto.TENSOR, t=tensor_to_proto(value.name, value._values, _store_inline))
    if isinstance(value, np.ndarray):
        return AttributeProto(name=name, type=AttributeProto.TENSOR, t=numpy_helper.from_array(value))
    if isinstance(value, gs.Graph):
        return AttributeProto(name=name, type=AttributeProto.GRAPH, g=graph_to_proto(value, store, node_name, root=False))
    if isinstance(value, list) and value and isinstance(value[0], gs.Graph):
        graphs = [graph_to_proto(item, store, node_name, root=False) for item in value]
        return AttributeProto(name=name, type=AttributeProto.GRAPHS, graphs=graphs)
    if kind == AttributeProto.FLOATS:
        return AttributeProto(name=name, type=kind, floats=value)
    if kind == AttributeProto.FLOAT and isinstance(value, int | float):
        return AttributeProto(name=name, type=kind, f=value)
    if isinstance(value, list | tuple) and not value:
        return AttributeProto(name=name, type=kind or AttributeProto.INTS)
    if isinstance(value, np.dtype | type):
        value = onnx_dtype(value)
    if isinstance(value, bytes):
        return AttributeProto(name=name, type=AttributeProto.STRING, s=value)
    return helper.make_attribute(name, value)


def tensor_to_proto(name: str, values: np.ndarray | LazyValues, store: StoreTensor) -> TensorProto:
    origin = values.tensor if isinstance(values, LazyValues) else None
    proto = TensorProto(name=name, dims=list(values.shape), data_type=onnx_dtype(values.dtype))
    if origin is not None:
        proto.doc_string = origin.doc_string
        proto.metadata_props.extend(origin.metadata_props)
    store(proto, values)
    return proto


def _store_inline(proto: TensorProto, values: np.ndarray | LazyValues) -> None:
    if isinstance(values, ProtoValues):
        assert values.tensor is not None
        for field, data in values.tensor.ListFields():  # the same field it was read from: nothing is re-encoded
            if field.name.endswith("_data"):
                if field.name == "raw_data":
                    proto.raw_data = data
                else:
                    getattr(proto, field.name).extend(data)
    elif proto.data_type == TensorProto.STRING:
        array = values.load() if isinstance(values, LazyValues) else values
        proto.string_data.extend(s if isinstance(s, bytes) else str(s).encode() for s in array.reshape(-1))
    else:
        proto.raw_data = bytes(raw_bytes(values))


def _store_skeleton(proto: TensorProto, values: np.ndarray | LazyValues) -> None:
    """Small values inline, the rest only announced: enough for shape inference, whatever the size of the model."""
    if values.nbytes <= _EXTERNAL_FROM_BYTES or proto.data_type == TensorProto.STRING:
        _store_inline(proto, values)
    else:
        proto.data_location = TensorProto.EXTERNAL
        proto.external_data.add(key="location", value="skeleton")


class _DataFile:
    """Appends tensors to one external-data file, each aligned so that readers can map it."""

    def __init__(self, stream: BinaryIO, location: str) -> None:
        self._stream = stream
        self._location = location
        self._written: dict[tuple[int, int], tuple[int, int]] = {}

    def store(self, proto: TensorProto, values: np.ndarray | LazyValues) -> None:
        if proto.data_type == TensorProto.STRING or values.nbytes < _EXTERNAL_FROM_BYTES:
            _store_inline(proto, values)
            return
        key = (id(values.file), values.offset) if isinstance(values, ExternalValues) else None
        if key is None or key not in self._written:
            place = self._append(raw_bytes(values))
            if key is not None:
                self._written[key] = place
        else:
            place = self._written[key]
        proto.data_location = TensorProto.EXTERNAL
        for name, value in (("location", self._location), ("offset", place[0]), ("length", place[1])):
            proto.external_data.add(key=name, value=str(value))

    def _append(self, data: memoryview) -> tuple[int, int]:
        position = self._stream.tell()
        padding = -position % _ALIGNMENT
        self._stream.write(b"\0" * padding)
        self._stream.write(data)
        return position + padding, data.nbytes


def _declaration(tensor: gs.Tensor) -> onnx.ValueInfoProto:
    """The declaration a tensor was read with while it still fits, otherwise a new one."""
    info = getattr(tensor, "info", None)
    if info is not None and _still_fits(tensor, info):
        if info.name == tensor.name:
            return info
        renamed = onnx.ValueInfoProto()
        renamed.CopyFrom(info)
        renamed.name = tensor.name
        return renamed
    if tensor.dtype is None:
        return onnx.ValueInfoProto(name=tensor.name)
    shape = None if tensor.shape is None else list(tensor.shape)
    return helper.make_tensor_value_info(tensor.name, onnx_dtype(tensor.dtype), shape)


def _still_fits(tensor: gs.Tensor, info: onnx.ValueInfoProto) -> bool:
    from onnxq.graph.read import variable

    if info.type.WhichOneof("value") != "tensor_type":
        return True
    told = variable(info)
    same_shape = (told.shape is None) == (tensor.shape is None) and list(told.shape or []) == list(tensor.shape or [])
    return told.dtype == tensor.dtype and same_shape


def _has_type(tensor: gs.Variable) -> bool:
    return tensor.dtype is not None or (getattr(tensor, "info", None) is not None and tensor.type != "tensor_type")


def skeleton(header: onnx.ModelProto, graph: gs.Graph) -> onnx.ModelProto:
    """The model with large weights left out: valid for shape inference, not for running."""
    model = onnx.ModelProto()
    model.CopyFrom(header)
    model.graph.CopyFrom(graph_to_proto(graph, _store_skeleton, str))
    return model


def inline_model(header: onnx.ModelProto, graph: gs.Graph, node_name: Callable[[str], str] = str) -> onnx.ModelProto:
    """The whole model as one ModelProto; refused above the size that protobuf can hold."""
    size = weight_bytes(graph)
    if size > PROTOBUF_LIMIT:
        raise ModelError(f"the model's weights take {size:,} bytes, more than one protobuf holds; save it to a file instead")
    model = onnx.ModelProto()
    model.CopyFrom(header)
    model.graph.CopyFrom(graph_to_proto(graph, _store_inline, node_name))
    return model


def weight_bytes(graph: gs.Graph) -> int:
    """Bytes of all initializers, bodies included."""
    total = 0
    pending = [(graph, True)]
    while pending:
        current, root = pending.pop()
        for constant in _constants(current, root).values():
            if constant.dtype != np.dtype(object):
                total += stored_size(onnx_dtype(constant.dtype), constant.shape)
        for node in current.nodes:
            pending.extend((body, False) for body in bodies(node))
    return total


def save_model(
    header: onnx.ModelProto, graph: gs.Graph, path: Path, external: bool, node_name: Callable[[str], str] = str
) -> list[Path]:
    """Write `path` (and `path`.data when `external`); returns the files written."""
    folder = path.parent
    if not folder.is_dir():
        raise ModelError(f"the folder {folder} does not exist")
    if not external:
        data = inline_model(header, graph, node_name).SerializeToString(deterministic=True)
        replace_file(path, lambda stream: stream.write(data))
        return [path]

    data_path = path.with_name(path.name + ".data")
    model = onnx.ModelProto()
    model.CopyFrom(header)

    def write_data(stream: BinaryIO) -> None:
        model.graph.CopyFrom(graph_to_proto(graph, _DataFile(stream, data_path.name).store, node_name))

    replace_file(data_path, write_data)
    replace_file(path, lambda stream: stream.write(model.SerializeToString(deterministic=True)))
    return [path, data_path]
