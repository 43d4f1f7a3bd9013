"""Averages on the DPU: a sum times k / 2^n in place of a division.

    factor = kh * kw * k / 2^n    multiplies the true average

3x3, 5x5, 6x6, 3x6, 6x3, 7x7 and 14x14 windows have figures of their own; for all others k / 2^n is the best
approximation of 1 / (kh * kw) with n < 7 + ceil(log2(kh * kw)), the first one of equals. Windows of more than 255 in
one direction are not computed there.
"""

from __future__ import annotations

import math
from typing import Any

from onnxq.emit.simulations import SIMULATIONS
from onnxq.emit.simulations.rewrite import Rewrite, line, on_chip
from onnxq.graph import Graph, Node
from onnxq.types import QParamsTable, QuantPlan

LARGEST_WINDOW = 255
_OWN_FIGURES = {
    (3, 3): (7, 64),
    (5, 5): (10, 256),
    (6, 6): (7, 256),
    (7, 7): (21, 1024),
    (14, 14): (21, 4096),
}
_LIKE_36 = ((3, 6), (6, 3))


def average_factor(height: int, width: int) -> float:
    """What the chip's average of a window is, divided by the true one."""
    count = height * width
    if max(height, width) > LARGEST_WINDOW:
        return 1.0
    if (height, width) in _OWN_FIGURES:
        numerator, denominator = _OWN_FIGURES[height, width]
        return count * numerator / denominator
    if (height, width) in _LIKE_36:
        return 36 * 7 / 256
    return mean_factor(count)


def mean_factor(count: int) -> float:
    """The same for a mean over `count` values without figures of its own."""
    best = min(range(7 + math.ceil(math.log2(count))), key=lambda n: abs(round(2**n / count) / 2**n - 1 / count))
    return float(count * round(2**best / count) / 2**best)


@SIMULATIONS.register("dpu_average_pool")
def simulate_averages(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> list[str]:
    """AveragePool, GlobalAveragePool and ReduceMean are multiplied by the chip's factor."""
    notes = []
    for node in on_chip(graph, plan, "AveragePool", "GlobalAveragePool", "ReduceMean"):
        factor = _factor(graph, node)
        if factor is None:
            notes.append(line(node, "the size of its window is not known, so its own rounding is not simulated"))
        elif factor != 1.0:
            rewrite = Rewrite(graph, node)
            rewrite.finish("Mul", rewrite.constant(factor))
            notes.append(line(node, f"multiplied by {factor:.9g}, the DPU's approximation of the division"))
    return notes


def _factor(graph: Graph, node: Node) -> float | None:
    if node.op == "AveragePool":
        window = [int(size) for size in node.attrs.get("kernel_shape", ())]
    else:
        sizes = _averaged(graph, node)
        if sizes is None or not all(isinstance(size, int) and size > 0 for size in sizes):
            return None
        window = [int(size) for size in sizes]
    if node.op == "ReduceMean":
        return mean_factor(math.prod(window)) if window else 1.0
    return average_factor(*window) if len(window) == 2 else None


def _averaged(graph: Graph, node: Node) -> list[Any] | None:
    """The sizes of the axes that are averaged over."""
    shape = graph.shape(node.inputs[0])
    if shape is None:
        return None
    if node.op == "GlobalAveragePool":
        return list(shape[2:])
    axes = node.attrs.get("axes")
    if axes is None and len(node.inputs) > 1 and node.inputs[1].name:
        if not graph.is_constant(node.inputs[1]):
            return None
        axes = graph.values(node.inputs[1]).tolist()
    return list(shape) if not axes else [shape[int(axis)] for axis in axes]
