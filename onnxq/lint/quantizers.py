"""The QuantizeLinear and DequantizeLinear nodes of any model, with their parameters read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx

from onnxq.graph import Graph
from onnxq.lint.finding import Finding
from onnxq.types.number_format import known_format

_OPS = ("QuantizeLinear", "DequantizeLinear")


@dataclass(frozen=True, eq=False)
class Quantizer:
    """One node. `scale` and `zero_point` are None when they are computed at run time (or there is no zero point).

    dtype      name of the quantized element type, None when the file does not tell
    constant   the quantized values are known: a weight or a bias, stored as integers or as floats behind Q and DQ, or
               rows of a stored table
    """

    node: str
    op: str
    data_name: str
    output_name: str
    scale_name: str
    zero_point_name: str
    scale: np.ndarray | None
    zero_point: np.ndarray | None
    axis: int
    dtype: str | None
    constant: bool

    def finding(self, rule: str, message: str, remedy: str) -> Finding:
        return Finding(
            rule,
            self.data_name,
            self.node,
            f"tensor '{self.data_name}' (node '{self.node}', {self.op}) {message}",
            remedy,
        )


def has_quantizers(graph: Graph) -> bool:
    """Whether there is any Q or DQ."""
    return any(node.op in _OPS for node in graph.nodes())


def quantizers(graph: Graph) -> list[Quantizer]:
    """Every Q and DQ of a graph, bodies included, whatever domain they come from."""
    parameters: dict[str, np.ndarray | None] = {}
    return [_read(graph, node, parameters) for node in graph.nodes() if node.op in _OPS]


@cache
def element_names(dtypes: tuple[str, ...]) -> frozenset[str]:
    """The spellings of element types; formats in blocks bring the types of their codes and of their scales."""
    names = {element_name(name) for name in dtypes}
    for name in dtypes:
        form = known_format(name)
        held = None if form is None else form.at_rest
        if held is not None:
            stored = (None if held.table is not None else held.code_type, held.own_type, held.scale_type)
            names |= {_spelled(kind.name) for kind in stored if kind is not None}
    return frozenset(names)


@cache
def type_name(dtype: np.dtype[Any]) -> str:
    """numpy's name of a type, which numpy puts together each time."""
    return dtype.name


@cache
def element_name(name: str) -> str:
    """One spelling for an element type: numpy's, ONNX's and onnxq's names of the float8 formats differ."""
    form = known_format(name)
    return _spelled(name if form is None else form.stored_as)


def _spelled(name: str) -> str:
    return name.lower().replace("_", "").removesuffix("fnu").removesuffix("fn")


INT32, UINT8 = _spelled("INT32"), _spelled("UINT8")
"""ONNX's types of biases, and of integers without a sign."""


def _read(graph: Graph, node: Any, parameters: dict[str, np.ndarray | None]) -> Quantizer:
    """`parameters` keeps the values of scales and zero points, which a Q and its DQ share."""
    data, scale = node.inputs[0], node.inputs[1]
    zero_point = node.inputs[2] if len(node.inputs) > 2 and node.inputs[2].name else None
    return Quantizer(
        node=str(node.name),
        op=str(node.op),
        data_name=str(data.name),
        output_name=str(node.outputs[0].name),
        scale_name=str(scale.name),
        zero_point_name="" if zero_point is None else str(zero_point.name),
        scale=_values(graph, scale, parameters),
        zero_point=None if zero_point is None else _values(graph, zero_point, parameters),
        axis=int(node.attrs.get("axis", 1)),
        dtype=_dtype(graph, node, zero_point),
        constant=_is_constant(graph, data, node.op),
    )


def _values(graph: Graph, tensor: Any, parameters: dict[str, np.ndarray | None]) -> np.ndarray | None:
    name = str(tensor.name)
    if name not in parameters:
        known = graph.values(tensor) if graph.is_constant(tensor) else _of_constants(graph, tensor, parameters)
        parameters[name] = known
    return parameters[name]


def _of_constants(graph: Graph, tensor: Any, parameters: dict[str, np.ndarray | None]) -> np.ndarray | None:
    """Scales of blocks that are stored in few bits: a Cast of them, or their product with a scale of the tensor."""
    producer = graph.producer(tensor)
    if producer is None or producer.op not in ("Cast", "Mul", "DequantizeLinear") or len(producer.inputs) > 2:
        return None
    values = [_values(graph, source, parameters) for source in producer.inputs]
    kind = graph.dtype(tensor)
    known = [each for each in values if each is not None]
    if kind is None or len(known) != len(values) or any(each.size != 1 for each in known[1:]):
        return None
    numbers = known[0].astype(np.float32)
    for each in known[1:]:
        numbers = numbers * each.astype(np.float32)
    return np.asarray(numbers.astype(kind))


def _dtype(graph: Graph, node: Any, zero_point: Any) -> str | None:
    """Type of the stored values: what the node reads (DQ), or what it is told to write (Q)."""
    if node.op == "DequantizeLinear":
        data = node.inputs[0]
        known = graph.dtype(data)
        if known is not None:
            return element_name(type_name(known))
        producer = graph.producer(data)
        if producer is not None and producer.op == "QuantizeLinear":
            given = producer.inputs[2] if len(producer.inputs) > 2 and producer.inputs[2].name else None
            return _dtype(graph, producer, given)
    if zero_point is not None:
        known = graph.dtype(zero_point)
        return None if known is None else element_name(type_name(known))
    if node.op == "DequantizeLinear":
        return None
    told = int(node.attrs.get("output_dtype", 0))
    return element_name(onnx.TensorProto.DataType.Name(told)) if told else UINT8


def _is_constant(graph: Graph, tensor: Any, reader: str) -> bool:
    if graph.is_constant(tensor):
        return True
    producer = graph.producer(tensor)
    makers = ("QuantizeLinear", "Gather") if reader == "DequantizeLinear" else ("QuantizeLinear",)
    return producer is not None and producer.op in makers and graph.is_constant(producer.inputs[0])
