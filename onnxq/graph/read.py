"""ModelProto -> graphsurgeon graph, losing nothing and reading no weights.

Differences from graphsurgeon's own importer: values stay lazy, every tensor of the model (bodies included) gets a name
of its own, nodes get unique names, and metadata, doc strings, declarations and unusual attributes are carried along.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import onnx
import onnx_graphsurgeon as gs
from onnx import AttributeProto, TensorProto

from onnxq.errors import ModelError
from onnxq.graph.declare import declared_type
from onnxq.graph.external import ExternalFiles
from onnxq.graph.names import Names
from onnxq.graph.nodes import Constant, Node, Scope, Variable
from onnxq.graph.placeholders import without_names
from onnxq.graph.signatures import attribute_kind, described, safe_inputs
from onnxq.graph.values import LazyValues, ProtoValues, SparseValues, text

Visible = dict[str, gs.Tensor]

_BODY_KINDS = (AttributeProto.GRAPH, AttributeProto.GRAPHS)


class GraphReader:
    """Builds one model; `given_node_names` maps every node name that is not the one in the file to that one.

    `placeholders` are names of dimensions that are none, and are not read as such.
    """

    def __init__(self, files: ExternalFiles, names: Names, opset: int, placeholders: Collection[str] = ()) -> None:
        self._files = files
        self._placeholders = placeholders
        self.names = names
        self._opset = opset
        self.given_node_names: dict[str, str] = {}

    def graph(self, proto: onnx.GraphProto, outer: Visible | None = None) -> Scope:
        """One scope; `outer` holds what is visible from outside, by its name in the file."""
        outer = {} if outer is None else outer
        here: Visible = {}
        scope = Scope(proto.name, proto.doc_string, self._opset)
        scope.metadata = {entry.key: entry.value for entry in proto.metadata_props}
        for tensor in proto.initializer:
            self._initializer(Constant(tensor.name, self._values(tensor), scope), scope, here)
        for sparse in proto.sparse_initializer:
            values = SparseValues(sparse, self._values(sparse.values), self._values(sparse.indices))
            self._initializer(Constant(sparse.values.name, values, scope), scope, here)
        for info in self._infos(proto.input):
            known = here.get(info.name)
            if isinstance(known, Constant):  # an initializer that the caller may override: its value is the default
                scope.overridable[known.name] = (len(scope.inputs), info)
            else:
                scope.inputs.append(self._declare(_described(Variable(info.name), info), here, "an input"))
        for node in proto.node:
            for name in node.output:
                if name:
                    self._declare(Variable(name), here, "the output of a node")
        for info in self._infos(proto.value_info):
            known = here.get(info.name)
            if known is not None and known.info is None:
                _described(known, info)
        for info in self._infos(proto.output):
            known = here.get(info.name)
            if isinstance(known, Variable) and known.info is None:
                _described(known, info)

        scope.nodes = [self._node(node, here, outer) for node in proto.node]
        for info in self._infos(proto.output):
            tensor = self._lookup(info.name, here, outer, f"an output of graph '{proto.name}'")
            scope.outputs.append(tensor)
            scope.output_declarations[tensor.name] = info
        scope.quantization_annotation = [_annotation(item, here, outer) for item in proto.quantization_annotation]
        return scope

    def _infos(self, infos: Iterable[onnx.ValueInfoProto]) -> Iterable[onnx.ValueInfoProto]:
        if not self._placeholders:
            return infos
        return [without_names(info, self._placeholders) for info in infos]

    def _initializer(self, constant: Constant, scope: Scope, here: Visible) -> None:
        self._declare(constant, here, "an initializer")
        scope.initializers[constant.name] = constant

    def _declare(self, tensor: gs.Tensor, here: Visible, what: str) -> gs.Tensor:
        name = tensor.name
        if not name:
            raise ModelError(f"{what} has no name; the model is not valid ONNX")
        if name in here:
            raise ModelError(
                f"tensor '{name}' is defined twice (the second time as {what}); the model is not valid ONNX"
            )
        here[name] = tensor
        unique = self.names.claim(name)
        if unique != name:
            tensor.name = unique
        return tensor

    def _lookup(self, name: str, here: Visible, outer: Visible, what: str) -> gs.Tensor:
        tensor = here.get(name) or outer.get(name)
        if tensor is None:
            raise ModelError(f"{what} refers to tensor '{name}', which nothing in the model produces")
        return tensor

    def _node(self, proto: onnx.NodeProto, here: Visible, outer: Visible) -> Node:
        given = proto.name
        if given:
            name = self.names.claim_node(given)
        else:
            name = self.names.fresh_node(f"{proto.op_type}_{proto.output[0]}" if proto.output else proto.op_type)
        if name != given:
            self.given_node_names[name] = given
        inputs = []
        for item in safe_inputs(proto):
            tensor = here.get(item) if item else Variable("")
            inputs.append(
                self._lookup(item, here, outer, f"node '{name}' ({proto.op_type})") if tensor is None else tensor
            )
        outputs = [here[item] if item else Variable("") for item in proto.output]
        domain = proto.domain
        node = Node(proto.op_type, name, None, inputs, outputs, "" if domain == "ai.onnx" else domain)
        node.__dict__.update(doc_string=proto.doc_string, overload=proto.overload)
        if proto.metadata_props:
            node.metadata.update((entry.key, entry.value) for entry in proto.metadata_props)
        if proto.device_configurations:
            node.device_configurations.extend(proto.device_configurations)
        for attribute in proto.attribute:
            kind = attribute_kind(attribute)
            visible = {**outer, **here} if kind in _BODY_KINDS else outer
            try:
                node.attrs[attribute.name] = self._attribute(attribute, kind, visible)
            except ModelError as error:
                if kind in _BODY_KINDS:  # speaks of a node or tensor inside, by its own name
                    raise
                raise ModelError(f"attribute '{attribute.name}' of {described(proto)}: {error}") from error
            node.attr_types[attribute.name] = kind
            if attribute.doc_string:
                node.attr_docs[attribute.name] = attribute.doc_string
        return node

    def _attribute(self, proto: AttributeProto, kind: int, visible: Visible) -> Any:
        if kind == AttributeProto.INT:
            return proto.i
        if kind == AttributeProto.INTS:
            return list(proto.ints)
        if kind == AttributeProto.FLOAT:
            return proto.f
        if kind == AttributeProto.STRING:
            return text(proto.s)
        if kind == AttributeProto.FLOATS:
            return list(proto.floats)
        if kind == AttributeProto.STRINGS:
            return [text(item) for item in proto.strings]
        if kind == AttributeProto.TENSOR:
            return Constant(proto.t.name, self._values(proto.t))
        if kind == AttributeProto.TENSORS:
            return [Constant(item.name, self._values(item)) for item in proto.tensors]
        if kind == AttributeProto.GRAPH:
            return self.graph(proto.g, visible)
        if kind == AttributeProto.GRAPHS:
            return [self.graph(item, visible) for item in proto.graphs]
        kept = AttributeProto()  # sparse tensors and type protos: carried as they are
        kept.CopyFrom(proto)
        return kept

    def _values(self, tensor: TensorProto) -> LazyValues:
        if tensor.data_location == TensorProto.EXTERNAL:
            return self._files.values(tensor)
        return ProtoValues(tensor)


def _described(tensor: gs.Tensor, info: onnx.ValueInfoProto) -> gs.Tensor:
    """Attach a declaration; of a variable it also tells dtype and shape."""
    tensor.__dict__["info"] = info
    if isinstance(tensor, Variable):
        kind = info.type.WhichOneof("value")
        if kind == "tensor_type":
            tensor.__dict__["dtype"], tensor.__dict__["shape"] = declared_type(info)
        elif kind is not None:
            tensor.type = kind
    return tensor


def _annotation(proto: onnx.TensorAnnotation, here: Visible, outer: Visible) -> onnx.TensorAnnotation:
    """The annotation with the names that its tensors have in memory."""
    kept = onnx.TensorAnnotation()
    kept.CopyFrom(proto)
    for visible in (outer, here):
        if proto.tensor_name in visible:
            kept.tensor_name = visible[proto.tensor_name].name
        for before, entry in zip(proto.quant_parameter_tensor_names, kept.quant_parameter_tensor_names, strict=True):
            if before.value in visible:
                entry.value = visible[before.value].name
    return kept
