"""The float forms of operators that read and make quantized numbers: QLinearConv, QLinearAdd, QGemm and their kind.

Each is a line of a table where its inputs are (numbers, scale, zero point) and all else is as in the float operator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxq.graph import Node
from onnxq.graph.attributes import AttributeValues
from onnxq.passes.rewriter import has_input
from onnxq.strip.grid import Grid, Stays
from onnxq.strip.numbers import parameters, real_values
from onnxq.strip.operators import MICROSOFT
from onnxq.strip.reals import Layers, Reals

Ports = tuple[int, int, int]


@dataclass(frozen=True)
class Form:
    """Float operator, the ports of its quantized inputs (numbers, scale, zero point), those of the result's parameters.

    plain        ports of inputs that are as in the float operator, in front of the others
    axes         channel axis of each quantized input, where scales are a list
    """

    op: str
    operands: tuple[Ports, ...]
    result: tuple[int, int]
    plain: tuple[int, ...] = ()
    axes: tuple[int, ...] = ()


_TWO = ((0, 1, 2), (3, 4, 5))
_FORMS = {
    ("", "QLinearMatMul"): Form("MatMul", _TWO, (6, 7), axes=(-2, -1)),
    (MICROSOFT, "QLinearAdd"): Form("Add", _TWO, (6, 7)),
    (MICROSOFT, "QLinearMul"): Form("Mul", _TWO, (6, 7)),
    (MICROSOFT, "QLinearSigmoid"): Form("Sigmoid", ((0, 1, 2),), (3, 4)),
    (MICROSOFT, "QLinearLeakyRelu"): Form("LeakyRelu", ((0, 1, 2),), (3, 4)),
    (MICROSOFT, "QLinearAveragePool"): Form("AveragePool", ((0, 1, 2),), (3, 4)),
    (MICROSOFT, "QLinearGlobalAveragePool"): Form("GlobalAveragePool", ((0, 1, 2),), (3, 4)),
    (MICROSOFT, "QLinearWhere"): Form("Where", ((1, 2, 3), (4, 5, 6)), (7, 8), plain=(0,)),
}


def operand(reals: Reals, node: Node, ports: Ports, axis: int = 1) -> Any:
    """The float tensor of a quantized input."""
    codes, scale, zero_point = ports
    return reals.real(node.inputs[codes], Grid.of(node, scale, zero_point, axis))


def attributes(node: Node, *dropped: str) -> AttributeValues:
    """Those of the float operator; layouts that it does not have are refused."""
    if node.attrs.get("channels_last", 0):
        raise Stays("its channels come last, which the float operator of ONNX does not have")
    return {key: value for key, value in node.attrs.items() if key not in ("channels_last", *dropped)}


def _by_table(reals: Reals, node: Node) -> Any:
    form = _FORMS[(node.domain or "", node.op)]
    axes = form.axes or (1,) * len(form.operands)
    inputs = [operand(reals, node, ports, axis) for ports, axis in zip(form.operands, axes, strict=True)]
    return reals.add(node, form.op, [*(node.inputs[port] for port in form.plain), *inputs], attrs=attributes(node))


def _concat(reals: Reals, node: Node) -> Any:
    inputs = [operand(reals, node, (port, port + 1, port + 2)) for port in range(2, len(node.inputs), 3)]
    return reals.add(node, "Concat", inputs, attrs=dict(node.attrs))


def _softmax(reals: Reals, node: Node) -> Any:
    """Before opset 13 a Softmax is over all axes from `axis` on; the node says which definition it follows."""
    x = operand(reals, node, (0, 1, 2))
    shape = reals.graph.shape(node.inputs[0])
    axis = int(node.attrs.get("axis", -1))
    last = axis == -1 or (shape is not None and axis == len(shape) - 1)
    if not last and (int(node.attrs.get("opset", 13)) >= 13) != (reals.graph.opset >= 13):
        raise Stays("it is a Softmax of another opset than the model's, over more than one axis")
    return reals.add(node, "Softmax", [x], attrs=attributes(node, "opset"))


def _conv(reals: Reals, node: Node) -> Any:
    inputs = [operand(reals, node, (0, 1, 2)), operand(reals, node, (3, 4, 5), axis=0)]
    if has_input(node, 8):
        inputs.append(_bias(reals, node, 8, _scales(reals, node, 1, 4)))
    return reals.add(node, "Conv", inputs, attrs=attributes(node))


def gemm(reals: Reals, node: Node) -> Any:
    """QGemm: C is int32 with the scale alpha * a_scale * b_scale."""
    alpha = np.float32(node.attrs.get("alpha", 1.0))
    transposed = int(node.attrs.get("transB", 0))
    inputs = [operand(reals, node, (0, 1, 2)), operand(reals, node, (3, 4, 5), axis=0 if transposed else 1)]
    if has_input(node, 6):
        inputs.append(_bias(reals, node, 6, alpha * _scales(reals, node, 1, 4)))
    return reals.add(node, "Gemm", inputs, attrs=dict(node.attrs))


def _scales(reals: Reals, node: Node, data: int, weight: int) -> np.ndarray:
    values = [Grid(node.inputs[port]).scale_values(reals.graph) for port in (data, weight)]
    return np.asarray(values[0].reshape(-1)[0] * values[1])


def _bias(reals: Reals, node: Node, port: int, scale: np.ndarray) -> Any:
    """Real numbers of an int32 bias, whose scale is that of the sums; a constant."""
    tensor = node.inputs[port]
    if not reals.graph.is_constant(tensor):
        raise Stays(f"its bias '{tensor.name}' is computed at run time")
    stored = reals.graph.values(tensor)
    found = parameters(stored.dtype.name, scale, None, shape=stored.shape, axis=stored.ndim - 1)
    return reals.constant(f"{tensor.name}_float", node, real_values(stored, found, scale.dtype))


def _grid(scale: int, zero_point: int) -> Callable[[Node], Grid]:
    return lambda node: Grid.of(node, scale, zero_point)


def _gemm_grid(node: Node) -> Grid | None:
    return Grid.of(node, 7, 8) if has_input(node, 7) else None


LAYERS: Layers = {
    **{key: (_by_table, _grid(*form.result)) for key, form in _FORMS.items()},
    ("", "QLinearConv"): (_conv, _grid(6, 7)),
    (MICROSOFT, "QLinearConv"): (_conv, _grid(6, 7)),
    (MICROSOFT, "QLinearConcat"): (_concat, _grid(0, 1)),
    (MICROSOFT, "QLinearSoftmax"): (_softmax, _grid(3, 4)),
    (MICROSOFT, "QGemm"): (gemm, _gemm_grid),
}
