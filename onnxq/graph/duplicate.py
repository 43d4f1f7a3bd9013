"""An independent copy of the in-memory graph that shares nothing but constant values."""

from __future__ import annotations

from typing import Any

import onnx
import onnx_graphsurgeon as gs

from onnxq.graph.nodes import Constant, Node, Scope, Variable


def duplicate(scope: Scope, made: dict[int, gs.Tensor] | None = None) -> Scope:
    """Copy nodes and tensors; `made` maps the tensors of outer scopes to their copies."""
    made = {} if made is None else made
    twin = Scope(scope.name, scope.doc_string, scope.opset)
    twin.metadata = dict(scope.metadata)
    twin.quantization_annotation = list(scope.quantization_annotation)
    twin.overridable = dict(scope.overridable)
    twin.output_declarations = dict(scope.output_declarations)

    def tensor(original: gs.Tensor) -> gs.Tensor:
        known = made.get(id(original))
        if known is None:
            known = _tensor(original, scope, twin)
            if original.name:
                made[id(original)] = known
        return known

    for name, constant in scope.initializers.items():
        twin.initializers[name] = tensor(constant)
    twin.inputs = [tensor(t) for t in scope.inputs]
    for node in scope.nodes:  # bodies may read tensors whose producers come later in an unsorted list
        for output in node.outputs:
            tensor(output)
    for node in scope.nodes:
        copied = Node(
            node.op,
            node.name,
            {key: _attribute(value, made) for key, value in node.attrs.items()},
            [tensor(t) for t in node.inputs],
            [tensor(t) for t in node.outputs],
            node.domain,
        )
        copied.__dict__.update(
            doc_string=node.doc_string,
            overload=node.overload,
            metadata=dict(node.metadata),
            attr_types=dict(node.attr_types),
            attr_docs=dict(node.attr_docs),
            device_configurations=list(node.device_configurations),
        )
        twin.nodes.append(copied)
    twin.outputs = [tensor(t) for t in scope.outputs]
    return twin


def _tensor(original: gs.Tensor, scope: Scope, twin: Scope) -> gs.Tensor:
    if isinstance(original, gs.Constant):
        constant = Constant(original.name, original._values, scope=twin if original.scope is scope else original.scope)
        constant.info = original.info
        return constant
    shape = None if original.shape is None else list(original.shape)
    variable = Variable(original.name, original.dtype, shape, original.info)
    variable.type = original.type
    return variable


def _attribute(value: Any, made: dict[int, gs.Tensor]) -> Any:
    if isinstance(value, gs.Graph):
        return duplicate(value, made)
    if isinstance(value, gs.Constant):
        return Constant(value.name, value._values)
    if isinstance(value, onnx.AttributeProto):
        kept = onnx.AttributeProto()
        kept.CopyFrom(value)
        return kept
    if isinstance(value, list):
        return [_attribute(item, made) for item in value]
    return value
