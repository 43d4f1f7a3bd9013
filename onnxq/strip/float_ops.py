"""The float forms of operators that quantize inside, or unpack weights, and make float values.

DynamicQuantizeMatMul, MatMulIntegerToFloat, DynamicQuantizeLSTM, QAttention, MatMulNBits, GatherBlockQuantized
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from onnxq.graph import Node
from onnxq.passes.edits import held_values, loaded
from onnxq.passes.rewriter import has_input
from onnxq.strip.grid import Grid, Stays
from onnxq.strip.linear_ops import gemm, operand
from onnxq.strip.numbers import parameters, real_values, unpacked
from onnxq.strip.operators import MICROSOFT
from onnxq.strip.reals import Float, Reals, quantizer_grid
from onnxq.types import PerBlock


def _dequantize(reals: Reals, node: Node) -> Any:
    return reals.real(node.inputs[0], quantizer_grid(node))


def _matmul(reals: Reals, node: Node, a: Any, weight: tuple[int, int, int], bias: int) -> Any:
    product = reals.add(node, "MatMul", [a, operand(reals, node, weight, axis=-1)])
    return reals.add(node, "Add", [product, node.inputs[bias]]) if has_input(node, bias) else product


def _dynamic_matmul(reals: Reals, node: Node) -> Any:
    return _matmul(reals, node, node.inputs[0], (1, 2, 3), 4)


def _matmul_to_float(reals: Reals, node: Node) -> Any:
    return _matmul(reals, node, operand(reals, node, (0, 2, 4)), (1, 3, 5), 6)


def _gemm_to_float(reals: Reals, node: Node) -> Any:
    if has_input(node, 7):
        raise Stays("its integers are read by a node that stays")  # its result is quantized: see LAYERS
    return gemm(reals, node)


def _attention(reals: Reals, node: Node) -> Any:
    inputs = [operand(reals, node, (0, 3, 6)), operand(reals, node, (1, 4, 7), axis=-1), node.inputs[2]]
    inputs += [node.inputs[port] if has_input(node, port) else None for port in (5, 8)]
    while inputs[-1] is None:
        inputs.pop()
    if len(node.outputs) > 1 and node.outputs[1].name:
        raise Stays("it hands on keys and values of the past in its own layout")
    return reals.add(node, "Attention", inputs, attrs=dict(node.attrs), domain=MICROSOFT)


def _lstm(reals: Reals, node: Node) -> Any:
    """Weights lie there as [directions, inputs, 4 * hidden], with a scale for each direction or column."""
    graph = reals.graph
    inputs = list(node.inputs[:8])
    for port, scale, zero_point in ((1, 8, 9), (2, 10, 11)):
        if not graph.is_constant(node.inputs[port]):
            raise Stays(f"its weight '{node.inputs[port].name}' is computed at run time")
        codes = graph.values(node.inputs[port])
        grid = Grid.of(node, scale, zero_point)
        scales, zeros = grid.scale_values(graph), grid.zero_point_values(graph)
        rows = [_direction(codes, scales, zeros, index) for index in range(codes.shape[0])]
        inputs[port] = reals.constant(f"{node.inputs[port].name}_float", node, np.stack(rows))
    while inputs and not inputs[-1].name:
        inputs.pop()
    made = [graph.add_variable(f"{tensor.name}_float") if tensor.name else None for tensor in node.outputs]
    new = graph.add_node(
        "LSTM", inputs, made, attrs=dict(node.attrs), name=f"{node.name}_float", scope=graph.scope_of(node)
    )
    graph.origins.node_became(node.name, new.name)
    for old, tensor in list(zip(node.outputs, made, strict=True))[1:]:
        if tensor is not None:
            graph.redirect(old, tensor)
    return made[0]


def _direction(codes: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None, index: int) -> np.ndarray:
    scale = np.asarray(scales[index] if scales.ndim and scales.shape[0] == codes.shape[0] else scales)
    zero = None if zeros is None else np.asarray(zeros[index] if zeros.ndim else zeros)
    found = parameters(codes.dtype.name, scale, zero, shape=codes.shape[1:], axis=1)
    return np.ascontiguousarray(real_values(codes[index], found, np.dtype(scale.dtype)).T)


# ---- weights in blocks -----------------------------------------------------------------------------------------------


def _matmul_nbits(reals: Reals, node: Node) -> Any:
    """Weight [N, blocks, bytes] -> [K, N]."""
    graph = reals.graph
    if has_input(node, 4):
        raise Stays("its weights have an order of groups of their own (g_idx)")
    if node.attrs.get("weight_prepacked", 0):
        raise Stays("its weights are packed for one machine; write the model without prepacking")
    features, rows, size = (_positive(node, name) for name in ("K", "N", "block_size"))
    bits = _positive(node, "bits", 4)
    weight, scales, zeros = (_held(reals, node, port, optional=port == 3) for port in (1, 2, 3))
    if weight.dtype != np.uint8:
        raise Stays(f"its weights are {weight.dtype}, and packed numbers are uint8")
    blocks = -(-features // size)
    if math.prod(weight.shape) != rows * blocks * (size * bits // 8) or math.prod(scales.shape) != rows * blocks:
        raise Stays(f"its weights and scales do not fit K={features}, N={rows}, bits={bits} and block_size={size}")
    compute = partial(_unpacked_rows, weight, scales, zeros, bits, size, (rows, features))
    name, scope = f"{node.inputs[1].name}_float", graph.scope_of(node)
    constant = reals.computed(name, (features, rows), scales.dtype, lambda: compute().T, scope)
    product = reals.add(node, "MatMul", [node.inputs[0], constant])
    return reals.add(node, "Add", [product, node.inputs[5]]) if has_input(node, 5) else product


def _unpacked_rows(weight: Any, scales: Any, zeros: Any, bits: int, size: int, shape: tuple[int, int]) -> np.ndarray:
    rows, features = shape
    blocks = -(-features // size)
    codes = unpacked(loaded(weight).reshape(rows, blocks, -1), bits, size).reshape(rows, -1)[:, :features]
    scale = loaded(scales).reshape(rows, blocks)
    if zeros is None:
        zero = np.full(scale.shape, 1 << (bits - 1), np.uint8)
    elif zeros.dtype == np.uint8:
        zero = unpacked(loaded(zeros).reshape(rows, -1), bits, blocks)
    else:  # real numbers as zero points, which is arithmetic of this operator alone
        block = np.arange(features) // size
        wide = codes.astype(np.float32) - loaded(zeros).reshape(rows, blocks).astype(np.float32)[:, block]
        return (wide * scale.astype(np.float32)[:, block]).astype(scale.dtype)
    found = parameters(f"uint{bits}", scale, zero, shape=codes.shape, axis=1, block=size)
    return real_values(codes, found, np.dtype(scale.dtype))


def _gather_blocks(reals: Reals, node: Node) -> Any:
    table, scales, zeros = (_held(reals, node, port, optional=port == 3) for port in (0, 2, 3))
    size, bits = _positive(node, "block_size", 128), _positive(node, "bits", 4)
    axis = int(node.attrs.get("quantize_axis", 1)) % len(table.shape)
    packed = table.dtype == np.uint8  # otherwise the type says how many bits there are
    shape = (*table.shape[:-1], table.shape[-1] * 8 // bits) if packed else tuple(table.shape)
    if tuple(scales.shape) != PerBlock(axis, size).scale_shape(shape):
        raise Stays(f"its scales of shape {list(scales.shape)} do not fit block_size={size} along axis {axis}")
    compute = partial(_unpacked_table, table, scales, zeros, bits if packed else 0, PerBlock(axis, size))
    scope = reals.graph.scope_of(node)
    constant = reals.computed(f"{node.inputs[0].name}_float", shape, scales.dtype, compute, scope)
    return reals.add(node, "Gather", [constant, node.inputs[1]], attrs={"axis": int(node.attrs.get("gather_axis", 0))})


def _unpacked_table(table: Any, scales: Any, zeros: Any, bits: int, blocks: PerBlock) -> np.ndarray:
    """`bits` is 0 where numbers are not packed into bytes; the zero points of packed ones are in the middle."""
    codes, scale = loaded(table), loaded(scales)
    stored = f"uint{bits}" if bits else codes.dtype.name
    points = None if zeros is None else loaded(zeros)
    if bits:
        codes = unpacked(codes, bits, codes.shape[-1] * 8 // bits)
        middle = np.full(scale.shape, 1 << (bits - 1), np.uint8)
        points = middle if points is None else unpacked(points, bits, scale.shape[-1])
    found = parameters(stored, scale, points, shape=codes.shape, axis=blocks.axis, block=blocks.size)
    return real_values(codes, found, np.dtype(scale.dtype))


def _positive(node: Node, name: str, default: int | None = None) -> int:
    """An attribute that is a whole number above 0; onnxruntime's operators are not looked at when a model is loaded."""
    value = node.attrs.get(name, default)
    if not isinstance(value, int) or value < 1:
        raise Stays(f"its attribute {name} is {value!r}, and has to be a number above 0")
    return value


def _held(reals: Reals, node: Node, port: int, *, optional: bool) -> Any:
    if not has_input(node, port):
        if optional:
            return None
        raise Stays(f"its input {port} is missing")
    tensor = node.inputs[port]
    source = reals.graph.producer(tensor)
    if source is not None and source.op == "Reshape" and reals.graph.is_constant(source.inputs[0]):
        shape = reals.graph.values(source.inputs[1]).tolist()
        return loaded(held_values(reals.graph, source.inputs[0])).reshape(shape)
    if not reals.graph.is_constant(tensor):
        raise Stays(f"its input '{tensor.name}' is computed at run time")
    return held_values(reals.graph, tensor)


FLOAT_RESULTS: dict[tuple[str, str], Float] = {
    ("", "DequantizeLinear"): _dequantize,
    (MICROSOFT, "DequantizeLinear"): _dequantize,
    (MICROSOFT, "DynamicQuantizeMatMul"): _dynamic_matmul,
    (MICROSOFT, "MatMulIntegerToFloat"): _matmul_to_float,
    (MICROSOFT, "QGemm"): _gemm_to_float,
    (MICROSOFT, "QAttention"): _attention,
    (MICROSOFT, "DynamicQuantizeLSTM"): _lstm,
    (MICROSOFT, "MatMulNBits"): _matmul_nbits,
    (MICROSOFT, "GatherBlockQuantized"): _gather_blocks,
}
"""(domain, operator) -> what makes a float tensor that stands for its first output."""
