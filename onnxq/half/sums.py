"""Operators that add up many terms, and how large their sums can get."""

from __future__ import annotations

import math
from collections.abc import Sequence

from onnxq.graph import Graph, Node

RECURRENT = ("LSTM", "GRU", "RNN")
_SQUARES = ("ReduceL2", "ReduceSumSquare", "LpNormalization", "InstanceNormalization")
_SUMS = (
    *("ReduceSum", "ReduceMean", "ReduceL1", "ReduceLogSum", "ReduceLogSumExp", "CumSum"),
    *("GlobalAveragePool", "GlobalLpPool", "AveragePool", "LpPool", "Softmax", "LogSoftmax", *_SQUARES),
)
BY_DATA = (*_SUMS, "Exp", "Pow", "Log", "Sqrt", "Reciprocal", "Div", "LayerNormalization")
"""Operators of which nobody knows the ranges who has not seen data."""
_AXES_INPUT = 1

Lengths = Sequence[int | str | None]


def adds_up(node: Node) -> bool:
    """Whether the operator sums over an axis in its own type; matrix products have accumulators of their own.

    Norms with `stash_type` 1 compute in float32 inside, whatever type they read.
    """
    return node.op in _SUMS


def sum_bound(node: Node, largest: float, terms: int) -> float:
    """The largest that a sum can get of terms up to `largest`."""
    if node.op in ("Softmax", "LogSoftmax", "ReduceLogSumExp"):
        return float(terms)  # of exp(x - max(x))
    return (largest**2 if node.op in _SQUARES else largest) * terms


def terms_of(graph: Graph, node: Node, shape: Lengths) -> int | None:
    """How many terms are added for one result; None where a length is open."""
    lengths = [shape[axis] for axis in _axes(graph, node, len(shape))]
    if node.op in ("AveragePool", "LpPool"):
        lengths = list(node.attrs["kernel_shape"])
    known = [length for length in lengths if isinstance(length, int)]
    return math.prod(known) if len(known) == len(lengths) else None


def _axes(graph: Graph, node: Node, rank: int) -> list[int]:
    if node.op in ("GlobalAveragePool", "GlobalLpPool", "InstanceNormalization"):
        return list(range(2, rank))
    if node.op in ("Softmax", "LogSoftmax"):
        axis = int(node.attrs.get("axis", -1 if graph.opset >= 13 else 1))
        return [axis % rank] if graph.opset >= 13 else list(range(axis % rank, rank))
    if node.op == "LpNormalization":
        return [int(node.attrs.get("axis", -1)) % rank]
    named = node.attrs.get("axes")
    second = node.inputs[_AXES_INPUT] if len(node.inputs) > _AXES_INPUT and node.inputs[_AXES_INPUT].name else None
    if named is None and second is not None and graph.is_constant(second):
        named = graph.values(second).reshape(-1).tolist()
    if named is None or (not named and not node.attrs.get("noop_with_empty_axes", 0)):
        return list(range(rank))
    return [int(axis) % rank for axis in named]
