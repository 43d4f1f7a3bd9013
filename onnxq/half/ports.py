"""Which inputs and outputs of an operator may be half precision, as ONNX defines it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from onnx import TensorProto, defs

from onnxq.graph import Graph, Node, bodies
from onnxq.half.kinds import HalfKind

_FLOAT32 = np.dtype(np.float32)
_OWN_TYPE = ("dtype", "output_dtype", "output_datatype")
"""Attributes that set the type of a result, apart from those of Cast and ConstantOfShape."""

QUANTIZERS = ("QuantizeLinear", "DequantizeLinear")
TYPELESS = ("Shape", "Size")
"""Operators that take any type and give none of it."""


@dataclass(frozen=True)
class Ports:
    """Ports with float32 tensors that become half precision."""

    inputs: frozenset[int]
    outputs: frozenset[int]


@dataclass(frozen=True)
class _Signature:
    inputs: tuple[bool, ...]
    outputs: tuple[bool, ...]


def half_ports(graph: Graph, node: Node, kind: HalfKind, opset: int) -> Ports | None:
    """The float32 ports of a node that may be half precision in an opset; None where the node cannot compute in it."""
    if node.domain or bodies(node) or node.op in QUANTIZERS or any(node.attrs.get(key) for key in _OWN_TYPE):
        return None
    if node.op == "Cast" and node.attrs["to"] != TensorProto.FLOAT:
        return None
    signature = _signature(node.op, opset, f"tensor({kind.name})")
    if signature is None:
        return None
    inputs = _ports(graph, node.inputs, signature.inputs)
    outputs = _ports(graph, node.outputs, signature.outputs)
    return Ports(inputs, outputs) if inputs or outputs else None


def _ports(graph: Graph, tensors: list[Any], allowed: tuple[bool, ...]) -> frozenset[int]:
    found = (port for port, tensor in enumerate(tensors) if is_float32(graph, tensor))
    return frozenset(port for port in found if allowed and allowed[min(port, len(allowed) - 1)])


def is_float32(graph: Graph, tensor: Any) -> bool:
    return bool(tensor.name) and graph.dtype(tensor) == _FLOAT32


@cache
def _signature(op: str, opset: int, wanted: str) -> _Signature | None:
    """For each port whether it takes the type; None where none that takes float32 does."""
    try:
        schema = defs.get_schema(op, opset, "")
    except defs.SchemaError:
        return None
    if schema.deprecated:
        return None
    types = {one.type_param_str: set(one.allowed_type_strs) for one in schema.type_constraints}

    def takes(parameter: Any) -> bool:
        return wanted in types.get(parameter.type_str, {parameter.type_str})

    made = _Signature(tuple(map(takes, schema.inputs)), tuple(map(takes, schema.outputs)))
    return made if any((*made.inputs, *made.outputs)) else None
