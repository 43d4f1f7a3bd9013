"""graphsurgeon graph -> GraphProto, with everything that was read and every edit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from onnx import AttributeProto, helper

from onnxq.errors import ModelError
from onnxq.graph.declare import declaration, declare
from onnxq.graph.element_types import onnx_dtype
from onnxq.graph.nodes import Node, Scope, Variable, bodies, has_plain_attributes
from onnxq.graph.store import StoreTensor, fill_tensor, store_inline
from onnxq.graph.values import LazyValues, SparseValues

_INLINE_ATTRIBUTE_BYTES = 2**16
INITIALIZERS_APART = 4
"""The IR version from which initializers need not be listed among the inputs."""


@dataclass(frozen=True)
class GraphWriter:
    """Fills protobufs in place; `store` puts tensor values somewhere, `node_name` gives the name to write.

    Outputs are declared in the user's words, or, without `in_users_words`, as what is known of them, and inner tensors
    with names for all sizes that are equal. Files have no invented names: where they show that the inputs of an Add
    have one shape, onnxruntime makes a SkipLayerNormalization, which takes longer than its parts. `store_attribute`
    is for large tensors in attributes; None takes `store`.
    """

    store: StoreTensor
    node_name: Callable[[str], str] = str
    ir_version: int = 4
    in_users_words: bool = True
    store_attribute: StoreTensor | None = None

    def graph(self, proto: onnx.GraphProto, scope: Scope, *, is_main: bool = True) -> None:
        """Write one scope with all bodies inside."""
        if scope.name:
            proto.name = scope.name
        if scope.doc_string:
            proto.doc_string = scope.doc_string
        _metadata(proto, scope.metadata)
        for node in scope.nodes:
            self.node(proto.node.add(), node)

        constants = constants_of(scope, is_main)
        for constant in constants.values():
            if isinstance(constant._values, SparseValues):
                self._sparse(proto.sparse_initializer.add(), constant)
            else:
                fill_tensor(proto.initializer.add(), constant.name, constant._values, self.store)
        self._inputs(proto, scope, constants, is_main)
        for tensor in scope.outputs:
            told = scope.output_declarations.get(tensor.name, getattr(tensor, "info", None))
            proto.output.append(declaration(tensor, told, is_interface=self.in_users_words))
        shown = {tensor.name for tensor in (*scope.inputs, *scope.outputs)}
        for constant in constants.values():
            if constant.info is not None and constant.name not in shown:
                proto.value_info.append(declaration(constant, constant.info, is_interface=False))
        for node in scope.nodes:
            for tensor in node.outputs:
                if tensor.name and tensor.name not in shown and _worth_declaring(tensor):
                    declare(proto.value_info.add(), tensor, invented_sizes=not self.in_users_words)
        if scope.quantization_annotation:
            alive = shown.union(
                constants, (tensor.name for node in scope.nodes for tensor in (*node.inputs, *node.outputs))
            )
            proto.quantization_annotation.extend(a for a in scope.quantization_annotation if a.tensor_name in alive)

    def _inputs(self, proto: onnx.GraphProto, scope: Scope, constants: dict[str, gs.Constant], is_main: bool) -> None:
        """Plain inputs in their order, with each overridable initializer at the position it had among them."""
        declared = [(i + 1, declaration(t, t.info, is_interface=True)) for i, t in enumerate(scope.inputs)]
        for name, (position, info) in scope.overridable.items():
            if name in constants:
                declared.append((position, declaration(constants[name], info, is_interface=True)))
        proto.input.extend(info for _, info in sorted(declared, key=lambda item: item[0]))
        if is_main and self.ir_version < INITIALIZERS_APART:
            new = (constant for name, constant in constants.items() if name not in scope.overridable)
            proto.input.extend(declaration(constant, constant.info, is_interface=True) for constant in new)

    def _sparse(self, proto: onnx.SparseTensorProto, constant: gs.Constant) -> None:
        held = constant._values
        proto.dims.extend(held.shape)
        fill_tensor(proto.values, constant.name, held.values, self.store)
        fill_tensor(proto.indices, held.sparse.indices.name, held.indices, self.store)

    def node(self, proto: onnx.NodeProto, node: Node) -> None:
        """Write one node with its attributes."""
        proto.op_type = node.op
        name = self.node_name(node.name)
        if name:
            proto.name = name
        if node.domain:
            proto.domain = node.domain
        if node.doc_string:
            proto.doc_string = node.doc_string
        if node.overload:
            proto.overload = node.overload
        proto.input.extend([tensor.name for tensor in node.inputs])
        proto.output.extend([tensor.name for tensor in node.outputs])
        if node.metadata:
            _metadata(proto, node.metadata)
        if node.device_configurations:
            proto.device_configurations.extend(node.device_configurations)
        for key, value in node.attrs.items():
            attribute = proto.attribute.add()
            try:
                self._attribute(attribute, key, value, node.attr_types.get(key))
            except (TypeError, ValueError) as error:
                raise ModelError(
                    f"attribute '{key}' of node '{node.name}' ({node.op}) cannot be written: {error}"
                ) from error
            if key in node.attr_docs:
                attribute.doc_string = node.attr_docs[key]

    def _attribute(self, proto: AttributeProto, name: str, value: Any, kind: Any) -> None:
        """`kind` is the type it was read with, or None; it decides where the value alone does not (empty lists)."""
        proto.name = name
        if type(value) is int or (type(value) is list and kind in _LISTS_OF_NUMBERS):  # nearly all there are
            _plain_attribute(proto, name, value, kind)
            return
        if isinstance(value, np.dtype | type):
            value = onnx_dtype(value)
        if isinstance(value, AttributeProto):
            proto.CopyFrom(value)
            proto.name = name
        elif isinstance(value, gs.Constant):
            proto.type = AttributeProto.TENSOR
            self._attribute_tensor(proto.t, value.name, value._values)
        elif isinstance(value, np.ndarray):
            proto.type = AttributeProto.TENSOR
            self._attribute_tensor(proto.t, "", value)
        elif isinstance(value, gs.Graph):
            proto.type = AttributeProto.GRAPH
            self.graph(proto.g, value, is_main=False)
        elif isinstance(value, list) and value and isinstance(value[0], gs.Graph):
            proto.type = AttributeProto.GRAPHS
            for item in value:
                self.graph(proto.graphs.add(), item, is_main=False)
        elif isinstance(value, list) and value and isinstance(value[0], gs.Constant):
            proto.type = AttributeProto.TENSORS
            for item in value:
                self._attribute_tensor(proto.tensors.add(), item.name, item._values)
        else:
            _plain_attribute(proto, name, value, kind)

    def _attribute_tensor(self, proto: onnx.TensorProto, name: str, values: np.ndarray | LazyValues) -> None:
        """Tensors in attributes stay inline, where every reader understands them, unless they are large."""
        large = values.nbytes > _INLINE_ATTRIBUTE_BYTES
        fill_tensor(proto, name, values, (self.store_attribute or self.store) if large else store_inline)


_LISTS_OF_NUMBERS = frozenset({AttributeProto.INTS, AttributeProto.FLOATS})


def node_to_proto(node: Node, store: StoreTensor, node_name: Callable[[str], str]) -> onnx.NodeProto:
    """One node by itself."""
    proto = onnx.NodeProto()
    GraphWriter(store, node_name).node(proto, node)
    return proto


def _plain_attribute(proto: AttributeProto, name: str, value: Any, kind: Any) -> None:
    """Numbers, strings and lists of them."""
    if type(value) is int and kind in (None, AttributeProto.INT):
        proto.type = AttributeProto.INT
        proto.i = value
    elif isinstance(value, int | float) and kind == AttributeProto.FLOAT:
        proto.type = kind
        proto.f = value
    elif isinstance(value, list | tuple) and not value:
        proto.type = AttributeProto.INTS if kind is None else kind
    elif isinstance(value, list | tuple) and kind == AttributeProto.FLOATS:
        proto.type = kind
        proto.floats.extend(value)
    elif kind == AttributeProto.INTS and isinstance(value, list) and all(type(item) is int for item in value):
        proto.type = kind
        proto.ints.extend(value)
    else:
        proto.CopyFrom(helper.make_attribute(name, value))


def _metadata(proto: onnx.GraphProto | onnx.NodeProto, entries: dict[str, str]) -> None:
    for key, value in entries.items():
        proto.metadata_props.add(key=key, value=value)


def _worth_declaring(tensor: gs.Tensor) -> bool:
    return isinstance(tensor, gs.Variable) and (tensor.dtype is not None or tensor.info is not None)


def constants_of(scope: Scope, is_main: bool) -> dict[str, gs.Constant]:
    """Initializers of `scope` in their order; those without a home live in the main graph, visible to all bodies."""
    found = {c.name: c for c in scope.initializers.values() if isinstance(c, gs.Constant)}
    if is_main:
        pending = [scope]
        while pending:
            current = pending.pop()
            for node in current.nodes:
                for tensor in node.inputs:
                    if type(tensor) is not Variable and isinstance(tensor, gs.Constant) and tensor.scope is None:
                        found.setdefault(tensor.name, tensor)
                if not has_plain_attributes(node):
                    pending.extend(bodies(node))
            for tensor in current.outputs:
                if isinstance(tensor, gs.Constant) and tensor.scope is None:
                    found.setdefault(tensor.name, tensor)
    return found


def weight_bytes(main: Scope) -> int:
    """Bytes of all initializers and tensors in attributes, bodies included; packed formats count unpacked."""
    return sum(held._values.nbytes for held in _held(main))


def _held(main: Scope) -> Iterator[gs.Constant]:
    pending = [main]
    while pending:
        scope = pending.pop()
        yield from constants_of(scope, is_main=scope is main).values()
        for node in scope.nodes:
            if has_plain_attributes(node):
                continue
            for value in node.attrs.values():
                if isinstance(value, gs.Constant):
                    yield value
                elif isinstance(value, list):
                    yield from (item for item in value if isinstance(item, gs.Constant))
            pending.extend(bodies(node))
