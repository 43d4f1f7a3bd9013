"""BatchNormalization at inference as y = scale * x + shift, one pair of numbers per channel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxq.errors import ModelError
from onnxq.graph import Graph, Node
from onnxq.passes.rewriter import Declined, constant_values, is_op

_EPSILON = 1e-5  # the operator's default
_VECTORS = ("scale", "bias", "mean", "variance")  # inputs 1 to 4


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
    gamma, beta, mean, variance = (
        constant_values(graph, node, port, name) for port, name in enumerate(_VECTORS, start=1)
    )
    if gamma.ndim != 1 or any(vector.shape != gamma.shape for vector in (beta, mean, variance)):
        raise Declined("scale, bias, mean and variance are not vectors of one length")
    spread = variance + _epsilon(node)
    if not np.all(spread > 0):
        raise Declined(f"variance + epsilon is {spread.min():g}: its square root cannot be divided by")
    scale = gamma / np.sqrt(spread)
    shift = beta - mean * scale
    if not all(np.all(np.isfinite(numbers)) for numbers in (spread, scale, shift)):
        raise Declined("its statistics hold infinities or NaN")
    return Affine(scale, shift)


def check_batchnorm_statistics(graph: Graph) -> None:
    """Raise a ModelError that names the first vector of a BatchNormalization with numbers that it cannot work with.

    No pass folds such a node, and as no weight is made of its vectors nothing else would look at them: its NaN may
    vanish in a Relu or Clip behind it.
    """
    for node in graph.nodes("BatchNormalization"):
        if not is_op(node, "BatchNormalization") or _trains(graph.opset, node):
            continue
        for what, tensor in zip(_VECTORS, node.inputs[1:], strict=False):
            if not graph.is_constant(tensor):
                continue
            values = np.asarray(graph.values(tensor)).astype(np.float64)
            wrong = ~np.isfinite(values)
            if what == "variance":
                wrong |= ~(values + _epsilon(node) > 0)
            if np.any(wrong):
                raise ModelError(_about_unusable(node, what, tensor.name, values, wrong))


def batchnorms_in_training(graph: Graph) -> list[str]:
    """Names of the BatchNormalization nodes that normalize with the statistics of the batch."""
    nodes = [node for node in graph.nodes("BatchNormalization") if is_op(node, "BatchNormalization")]
    return [node.name for node in nodes if _trains(graph.opset, node)]


def _about_unusable(node: Node, what: str, name: str, values: np.ndarray, wrong: np.ndarray) -> str:
    first = tuple(int(place) for place in np.argwhere(wrong)[0])
    value = values[first]
    reason = f"plus epsilon {_epsilon(node):g} it has no square root to divide by" if np.isfinite(value) else ""
    return (
        f"{what} '{name}' of BatchNormalization '{node.name}' holds {value:g} at index {first}"
        f"{': ' + reason if reason else ''}; {np.count_nonzero(wrong):,} of its {wrong.size:,} values are unusable. "
        "Repair the model (a training that diverged or a damaged checkpoint are common causes) and export it again"
    )


def _epsilon(node: Node) -> float:
    return float(node.attrs.get("epsilon", _EPSILON))


def _trains(opset: int, node: Node) -> bool:
    if opset >= 14:
        return bool(node.attrs.get("training_mode", 0)) or any(tensor.name for tensor in node.outputs[1:])
    if opset < 7:
        return not node.attrs.get("is_test", 0)
    return any(tensor.name for tensor in node.outputs[1:])  # opsets 7 to 13 say it by asking for the statistics
