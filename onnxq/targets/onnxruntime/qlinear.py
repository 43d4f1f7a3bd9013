"""Models of QLinear operators: what stands between a DequantizeLinear and a QuantizeLinear becomes one operator.

The Q/DQ form of the model is made first, so that placement, rounding, stored integers, absorbed activations and bodies
are the same in both. Then every operator that reads dequantized values only, and whose result only a QuantizeLinear
reads, is exchanged for its integer form: QLinearConv and QLinearMatMul of ONNX, QGemm, QLinearAdd, QLinearAveragePool,
QLinearGlobalAveragePool and QLinearConcat of com.microsoft. An operator that moves values moves the integers.
What has no integer form keeps its Q/DQ nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from onnxq.emit import EMITTERS, EmitRequest, Emitted, Emitter
from onnxq.emit.qdq import to_qdq
from onnxq.graph import Graph, Node, collector_paused
from onnxq.graph.attributes import AttributeValues
from onnxq.types import Backend, QParamsTable, QuantPlan
from onnxq.types.note import Note

MICROSOFT = "com.microsoft"
_MOVING = ("MaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Split", "Resize")
_POOL_ATTRIBUTES = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")


class _Operand(NamedTuple):
    """Integers with the scale and zero point that the node in front (or behind) has for them."""

    integers: Any
    scale: Any
    zero_point: Any

    @property
    def three(self) -> list[Any]:
        return [self.integers, self.scale, self.zero_point]


class _Form(NamedTuple):
    """The integer operator that takes the place of a node."""

    op: str
    domain: str
    inputs: list[Any]
    attrs: AttributeValues


def to_qlinear(graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend) -> tuple[Graph, list[str]]:
    """A new graph with integer operators, and a line for each thing that changed or could not."""
    result, notes = to_qdq(graph, plan, qparams, backend)
    with collector_paused():
        for node in result.nodes():
            if node.domain or not (node.op in _FORMS or node.op in _MOVING):
                continue
            done = _move_integers(result, node) if node.op in _MOVING else _exchange(result, node)
            if not done and node.name in plan.quantized:
                text = f"'{node.name}' ({node.op}) keeps its Q/DQ nodes: not all around it is quantized"
                notes.append(Note("pairs", text))
        result.remove_dead()
    return result, notes


def _exchange(graph: Graph, node: Node) -> bool:
    """Put the integer form in the place of a node; False where something around it is float."""
    operands = [_dequantized(graph, tensor) for tensor in node.inputs if tensor.name]
    behind = _quantizer_behind(graph, node.outputs[0])
    if behind is None or any(operand is None for operand in operands):
        return False
    made = _Operand(behind.outputs[0], behind.inputs[1], behind.inputs[2])
    form = _FORMS[node.op](graph, node, [operand for operand in operands if operand is not None], made)
    if form is None:
        return False
    scope, name = graph.scope_of(node), node.name
    graph.remove([behind, node])
    graph.add_node(form.op, form.inputs, [made.integers], attrs=form.attrs, name=name, domain=form.domain, scope=scope)
    return True


def _move_integers(graph: Graph, node: Node) -> bool:
    """Let a node that moves values read and give integers, where the parameters on both sides are equal."""
    operand = _dequantized(graph, node.inputs[0])
    behind = [_quantizer_behind(graph, made) for made in node.outputs if made.name]
    if operand is None or any(item is None for item in behind) or len(behind) != len(node.outputs):
        return False
    quantizers = [item for item in behind if item is not None]
    for quantizer in quantizers:
        if not (_equal(graph, operand.scale, quantizer.inputs[1]) and _equal(graph, operand[2], quantizer.inputs[2])):
            return False
    results = [quantizer.outputs[0] for quantizer in quantizers]
    inputs, attrs, scope, name = [operand.integers, *node.inputs[1:]], dict(node.attrs), graph.scope_of(node), node.name
    graph.remove([*quantizers, node])
    graph.add_node(node.op, inputs, results, attrs=attrs, name=name, scope=scope)
    return True


def _dequantized(graph: Graph, tensor: Any) -> _Operand | None:
    """The integers behind a dequantized tensor; a zero point that is left out is None."""
    node = graph.producer(tensor)
    if node is None or node.op != "DequantizeLinear":
        return None
    zero_point = node.inputs[2] if len(node.inputs) > 2 and node.inputs[2].name else None
    return _Operand(node.inputs[0], node.inputs[1], zero_point)


def _quantizer_behind(graph: Graph, tensor: Any) -> Node | None:
    """The QuantizeLinear that alone reads a tensor."""
    uses = graph.consumers(tensor)
    if graph.is_output(tensor) or len(uses) != 1 or uses[0].node.op != "QuantizeLinear" or uses[0].port != 0:
        return None
    found: Node = uses[0].node
    return found if len(found.inputs) > 2 and found.inputs[2].name else None


def _equal(graph: Graph, one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    return one is other or np.array_equal(graph.values(one), graph.values(other))


def _conv(graph: Graph, node: Node, operands: Sequence[_Operand], made: _Operand) -> _Form | None:
    data, weight = operands[0], operands[1]
    bias = [operand.integers for operand in operands[2:]]
    inputs = [*data.three, *weight.three, made.scale, made.zero_point, *bias]
    return _Form("QLinearConv", "", inputs, dict(node.attrs))


def _matmul(graph: Graph, node: Node, operands: Sequence[_Operand], made: _Operand) -> _Form | None:
    return _Form(
        "QLinearMatMul", "", [*operands[0].three, *operands[1].three, made.scale, made.zero_point], dict(node.attrs)
    )


def _gemm(graph: Graph, node: Node, operands: Sequence[_Operand], made: _Operand) -> _Form | None:
    if float(node.attrs.get("beta", 1.0)) != 1.0:
        return None
    attrs = {key: value for key, value in node.attrs.items() if key != "beta"}
    bias = operands[2].integers if len(operands) > 2 else None
    inputs = [*operands[0].three, *operands[1].three, bias, made.scale, made.zero_point]
    return _Form("QGemm", MICROSOFT, inputs, attrs)


def _add(graph: Graph, node: Node, operands: Sequence[_Operand], made: _Operand) -> _Form | None:
    inputs = [*operands[0].three, *operands[1].three, made.scale, made.zero_point]
    return _Form("QLinearAdd", MICROSOFT, inputs, {})


def _average_pool(graph: Graph, node: Node, operands: Sequence[_Operand], made: _Operand) -> _Form | None:
    if any(int(step) != 1 for step in node.attrs.get("dilations", ())):
        return None
    attrs = {key: value for key, value in node.attrs.items() if key in _POOL_ATTRIBUTES}
    return _Form("QLinearAveragePool", MICROSOFT, [*operands[0].three, made.scale, made.zero_point], attrs)


def _global_average_pool(graph: Graph, node: Node, operands: Sequence[_Operand], made: _Operand) -> _Form | None:
    inputs = [*operands[0].three, made.scale, made.zero_point]
    return _Form("QLinearGlobalAveragePool", MICROSOFT, inputs, {"channels_last": 0})


def _concat(graph: Graph, node: Node, operands: Sequence[_Operand], made: _Operand) -> _Form | None:
    inputs = [made.scale, made.zero_point, *(part for operand in operands for part in operand.three)]
    return _Form("QLinearConcat", MICROSOFT, inputs, dict(node.attrs))


Form = Callable[[Graph, Node, Sequence[_Operand], _Operand], _Form | None]
_FORMS: dict[str, Form] = {
    "Conv": _conv,
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Add": _add,
    "AveragePool": _average_pool,
    "GlobalAveragePool": _global_average_pool,
    "Concat": _concat,
}


def write_qlinear(request: EmitRequest) -> Emitted:
    """Write `<name>.onnx` with QLinear operators: integers from operator to operator."""
    result, notes = to_qlinear(*request.quantized, request.backend)
    return Emitted(tuple(result.save(request.path(".onnx"))), tuple(notes))


EMITTERS.add("qlinear", Emitter(write_qlinear, files=(".onnx",)))
