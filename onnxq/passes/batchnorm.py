"""BatchNormalization at inference as y = scale * x + shift, one pair of numbers per channel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxq.graph import Graph, Node
from onnxq.passes.rewriter import Declined, constant_values

_EPSILON = 1e-5  # the operator's default


@dataclass(frozen=True, eq=False)
class Affine:
    """Vectors over the channels, float64."""

    scale: np.ndarray
    shift: np.ndarray

    @property
    def channels(self) -> int:
        return len(self.scale)


def read_batchnorm(graph: Graph, node: Node) -> Affine:
    """Scale and shift of a BatchNormalization of any opset; declines one that trains or whose numbers are unusable."""
    if _trains(graph.opset, node):
        raise Declined("it is in training mode: its statistics change with every batch")
    if not node.attrs.get("spatial", 1):
        raise Declined("spatial=0 has statistics for every position instead of every channel")
    names = ("scale", "bias", "mean", "variance")
    gamma, beta, mean, variance = (constant_values(graph, node, port, name) for port, name in enumerate(names, start=1))
    if gamma.ndim != 1 or any(vector.shape != gamma.shape for vector in (beta, mean, variance)):
        raise Declined("scale, bias, mean and variance are not vectors of one length")
    spread = variance + float(node.attrs.get("epsilon", _EPSILON))
    if not np.all(spread > 0):
        raise Declined(f"variance + epsilon is {spread.min():g}: its square root cannot be divided by")
    scale = gamma / np.sqrt(spread)
    shift = beta - mean * scale
    if not (np.all(np.isfinite(scale)) and np.all(np.isfinite(shift))):
        raise Declined("its statistics hold infinities or NaN")
    return Affine(scale, shift)


def _trains(opset: int, node: Node) -> bool:
    if opset >= 14:
        return bool(node.attrs.get("training_mode", 0)) or any(tensor.name for tensor in node.outputs[1:])
    if opset < 7:
        return not node.attrs.get("is_test", 0)
    return any(tensor.name for tensor in node.outputs[1:])  # opsets 7 to 13 say it by asking for the statistics
