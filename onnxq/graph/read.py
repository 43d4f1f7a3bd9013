"""ModelProto -> graphsurgeon graph, losing nothing and reading no weights.

Differences from graphsurgeon's own importer: values stay lazy, every tensor of the model (bodies included) gets a name
of its own, nodes get unique names, and metadata, doc strings, declarations and unusual attributes are carried along.
"""

from __future__ import annotations

from typing import Any

import onnx
import onnx_graphsurgeon as gs
from onnx import AttributeProto, TensorProto, numpy_helper

from onnxq.errors import ModelError
from onnxq.graph.external import ExternalFiles
from onnxq.graph.names import Names
from onnxq.graph.nodes import Constant, Node, Variable
from onnxq.graph.values import LazyValues, ProtoValues, numpy_dtype

Scope = dict[str, gs.Tensor]


class GraphReader:
    """Builds one model; `renamed` lists (kind, name in the file, name in memory) for every name that was not unique."""

    def __init__(self, files: ExternalFiles, names: Names, opset: int) -> None:
        self._files = files
        self._names = names
        self._opset = opset
        self.renamed: list[tuple[str, str, str]] = []

    def graph(self, proto: onnx.GraphProto, outer: Scope | None = None) -> gs.Graph:
        scope: Scope = {}
        result = gs.Graph(name=proto.name, doc_string=proto.doc_string, opset=self._opset)
        result.metadata = {entry.key: entry.value for entry in proto.metadata_props}
        result.quantization_annotation = list(proto.quantization_annotation)
        result.overridable = {}
        result.initializers = {}

        for tensor in proto.initializer:
            constant = Constant(tensor.name, self._values(tensor), scope=result)
            self._declare(constant, scope, "initializer")
            result.initializers[constant.name] = constant
        for sparse in proto.sparse_initializer:
            constant = Constant(sparse.values.name, _dense(sparse), scope=result)
            self._declare(constant, scope, "sparse initializer")
            result.initializers[constant.name] = constant
        for position, info in enumerate(proto.input):
            if info.name in scope:  # an initializer that the caller may override: its default counts
                result.overridable[scope[info.name].name] = (position, info)
                continue
            result.inputs.append(self._declare(variable(info), scope, "input"))
        for node in proto.node:
            for name in node.output:
                if name:
                    self._declare(Variable(name), scope, f"output of node '{node.name or node.op_type}'")
        for info in [*proto.value_info, *proto.output]:
            known = scope.get(info.name)
            if isinstance(known, Variable) and known.info is None:
                describe(known, info)

        result.nodes = [self._node(node, scope, outer or {}) for node in proto.node]
        for info in proto.output:
            result.outputs.append(self._lookup(info.name, scope, outer or {}, f"output '{info.name}'", info))
        return result

    def _declare(self, tensor: gs.Tensor, scope: Scope, what: str) -> gs.Tensor:
        if not tensor.name:
            raise ModelError(f"an {what} of the graph has no name")
        if tensor.name in scope:
            raise ModelError(f"tensor '{tensor.name}' is defined twice (second time as {what}); the model is not valid ONNX")
        scope[tensor.name] = tensor
        unique = self._names.claim(tensor.name)
        if unique != tensor.name:
            self.renamed.append(("tensor", tensor.name, unique))
            tensor.name = unique
        return tensor

    def _lookup(self, name: str, scope: Scope, outer: Scope, what: str, info: Any = None) -> gs.Tensor:
        if not name:
            return Variable("")
        tensor = scope.get(name)
        if tensor is None:
            tensor = outer.get(name)
        if tensor is None:
            raise ModelError(f"{what} refers to tensor '{name}', which nothing in the model produces")
        return tensor

    def _node(self, proto: onnx.NodeProto, scope: Scope, outer: Scope) -> Node:
        wanted = proto.name or f"{proto.op_type}_{proto.output[0] if proto.output else 'node'}"
        name = self._names.claim_node(wanted)
        if name != proto.name:
            self.renamed.append(("node", proto.name, name))
        what = f"node '{name}' ({proto.op_type})"
        node = Node(
            proto.op_type,
            name,
            inputs=[self._lookup(i, scope, outer, what) for i in proto.input],
            outputs=[scope[o] if o else Variable("") for o in proto.output],
            domain="" if proto.domain == "ai.onnx" else proto.domain,
        )
        node.doc_string = proto.doc_string
        node.overload = proto.overload
        node.metadata = {entry.key: entry.value for entry in proto.metadata_props}
        node.device_configurations = list(proto.device_configurations)
        visible = {**outer, **scope} if any(a.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for a in proto.attribute) else {}
        for attribute in proto.attribute:
            node.attrs[attribute.name] = self._attribute(attribute, visible)
            node.attr_types[attribute.name] = attribute.type
        return node

    def _attribute(self, proto: AttributeProto, visible: Scope) -> Any:
        kind = proto.type
        if kind == AttributeProto.FLOAT:
            return proto.f
        if kind == AttributeProto.INT:
            return proto.i
        if kind == AttributeProto.STRING:
            return _text(proto.s)
        if kind == AttributeProto.FLOATS:
            return list(proto.floats)
        if kind == AttributeProto.INTS:
            return list(proto.ints)
        if kind == AttributeProto.STRINGS:
            return [_text(item) for item in proto.strings]
        if kind == AttributeProto.TENSOR:
            return Constant(proto.t.name, self._values(proto.t))
        if kind == AttributeProto.GRAPH:
            return self.graph(proto.g, visible)
        if kind == AttributeProto.GRAPHS:
            return [self.graph(item, visible) for item in proto.graphs]
        kept = AttributeProto()  # sparse tensors, type protos, lists of tensors: carried as they are
        kept.CopyFrom(proto)
        return kept

    def _values(self, tensor: TensorProto) -> LazyValues:
        if tensor.data_location == TensorProto.EXTERNAL:
            return self._files.values(tensor)
        return ProtoValues(tensor)


def variable(info: onnx.ValueInfoProto) -> Variable:
    return describe(Variable(info.name), info)


def describe(tensor: Variable, info: onnx.ValueInfoProto) -> Variable:
    """Take dtype and shape from a declaration; other than plain tensor types keep only the declaration."""
    tensor.info = info
    kind = info.type.WhichOneof("value")
    if kind == "tensor_type":
        tensor_type = info.type.tensor_type
        if tensor_type.elem_type:
            tensor.dtype = numpy_dtype(tensor_type.elem_type, info.name)
        if tensor_type.HasField("shape"):
            tensor.shape = [_dimension(dim) for dim in tensor_type.shape.dim]
    elif kind is not None:
        tensor.type = kind
    return tensor


def _dimension(dim: Any) -> int | str | None:
    if dim.HasField("dim_value"):
        return int(dim.dim_value)
    if dim.HasField("dim_param") and dim.dim_param:
        return str(dim.dim_param)
    return None


def _text(data: bytes) -> str | bytes:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data


def _dense(sparse: onnx.SparseTensorProto) -> Any:
    import numpy as np

    values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    dense = np.zeros(tuple(sparse.dims), dtype=values.dtype)
    if indices.ndim == 2:
        dense[tuple(indices.T)] = values
    else:
        dense.reshape(-1)[indices] = values
    return dense
