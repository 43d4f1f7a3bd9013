"""Additions and averages on BM chips: integers times m / 2^n with m below 127, each product rounded on its own.

    Add        q = r(q1 * m1 / 2^n1) + r(q2 * m2 / 2^n2)      m1 / 2^n1 near scale1 / scale, and so on
    average    q = r(sum of q * m / 2^n)                      m / 2^n near scale of the input / (scale * window)

For an Add r rounds halves up, for an average away from zero. The quantizer behind saturates q. Convolutions and matrix
products have multipliers of 32 bits and need nothing here.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onnxq.emit.simulations import SIMULATIONS
from onnxq.emit.simulations.rewrite import Rewrite, line, on_chip
from onnxq.graph import Graph, Node
from onnxq.targets.sophgo.modes import float_result
from onnxq.targets.sophgo.names import result_of
from onnxq.types import PerTensor, QParamsTable, QuantPlan

LARGEST_MULTIPLIER = 127


def multiplier_and_shift(ratio: float) -> tuple[int, int]:
    """m and n with m / 2^n nearest to `ratio` and m below 127; the smallest n of equals. All in float32, as there."""
    best, shift = math.inf, 0
    for n in range(-32, 31):
        m = _half_away(ratio * 2.0**n)
        error = float(np.float32(abs(ratio - m / 2.0**n)))
        if error < best and m < LARGEST_MULTIPLIER:
            best, shift = error, n
    return _half_away(ratio * 2.0**shift), shift


def _half_away(value: float) -> int:
    return math.floor(value + 0.5)


@SIMULATIONS.register("sophgo_multipliers")
def simulate_multipliers(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> list[str]:
    """Adds and averages get the multipliers of the chip."""
    notes = []
    for node in list(on_chip(graph, plan, "Add", "AveragePool", "GlobalAveragePool")):
        if node.name in plan.fused:
            continue  # the bias of a matrix product
        if float_result(graph, plan, node) is not None:
            continue  # it runs in float
        scale = _scale(plan, qparams, str(result_of(graph, node, plan.fused).name))
        read = [tensor for tensor in node.inputs if tensor.name]
        scales = [_scale(plan, qparams, str(tensor.name)) for tensor in read]
        if scale is None or None in scales or any(graph.is_constant(tensor) for tensor in read):
            notes.append(line(node, "its multipliers on the chip are not simulated"))
        elif node.op == "Add":
            _rewrite_add(graph, node, [float(s) for s in scales if s is not None], scale)
        elif not _rewrite_average(graph, node, float(scales[0] or 1.0), scale):
            notes.append(line(node, "it averages over edges, so its multiplier on the chip is not simulated"))
    return notes


def _scale(plan: QuantPlan, qparams: QParamsTable, tensor: str) -> float | None:
    """The one scale of an 8-bit symmetric quantizer that every reader of the tensor sees."""
    if tensor not in plan or plan[tensor].edges is not None:
        return None
    spec = plan[tensor].spec
    simple = spec.dtype in ("int8", "uint8") and spec.symmetric and spec.granularity == PerTensor()
    return float(qparams[tensor].scale) if simple else None


def _rewrite_add(graph: Graph, node: Node, scales: list[float], scale: float) -> None:
    scope = graph.scope_of(node)
    for port, (tensor, one) in enumerate(zip(list(node.inputs), scales, strict=True)):
        multiplier, shift = multiplier_and_shift(_ratio(one, scale))
        numbers = [one, multiplier / 2.0**shift, 0.5]
        held = [
            graph.add_constant(f"{node.name}_number", np.asarray(value, np.float32), scope=scope) for value in numbers
        ]
        last: Any = tensor
        for op, others in (("Div", held[:1]), ("Round", []), ("Mul", held[1:2]), ("Add", held[2:]), ("Floor", [])):
            made = graph.add_variable(f"{node.name}_{op}", np.float32, tensor.shape)
            graph.add_node(op, [last, *others], [made], name=f"{node.name}_{op}", scope=scope)
            last = made
        node.inputs[port] = last
    rewrite = Rewrite(graph, node)
    rewrite.finish("Mul", rewrite.constant(scale))


def _rewrite_average(graph: Graph, node: Node, one: float, scale: float) -> bool:
    window = _window(graph, node)
    if window is None:
        return False
    multiplier, shift = multiplier_and_shift(_ratio(one, scale * window))
    rewrite = Rewrite(graph, node)
    rewrite.then("Mul", rewrite.constant(window / one))
    rewrite.then("Round")  # the sum of the integers
    product = rewrite.then("Mul", rewrite.constant(multiplier / 2.0**shift))
    sign = rewrite.then("Sign")
    rewrite.last = product
    rewrite.then("Abs")
    rewrite.then("Add", rewrite.constant(0.5))
    rewrite.then("Floor")
    rewrite.then("Mul", sign)
    rewrite.finish("Mul", rewrite.constant(scale))
    return True


def _ratio(one: float, other: float) -> float:
    return float(np.float32(one / other))


def _window(graph: Graph, node: Node) -> int | None:
    """How many values each average is over; None where that differs from place to place."""
    if node.op == "AveragePool":
        padded = any(node.attrs.get("pads", ())) or node.attrs.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID")
        if padded or node.attrs.get("ceil_mode", 0):
            return None
        return math.prod(int(size) for size in node.attrs["kernel_shape"])
    shape = graph.shape(node.inputs[0])
    sizes = [size for size in (shape or (None, None, None))[2:] if isinstance(size, int)]
    return math.prod(sizes) if shape is not None and len(sizes) == len(shape) - 2 else None
