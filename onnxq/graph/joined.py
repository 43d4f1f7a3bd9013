"""Outputs that several results were joined to by a Concat: where each of them lies.

A detector gives boxes and scores as one tensor. Coordinates of hundreds of pixels and scores below 1 have nothing in
common but the tensor: an error of the whole is that of the boxes, whatever became of the scores.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from onnxq.graph.graph import Graph

UNLIKE = 10.0
"""Parts are unlike where one is larger than another by this factor: in a sum of squares the smaller hardly counts."""


@dataclass(frozen=True)
class Join:
    """Parts along an axis; `ends` has the index behind the last one of each."""

    axis: int
    ends: tuple[int, ...]

    def cut(self, values: np.ndarray) -> list[np.ndarray] | None:
        """The parts of a tensor; None where it has another length than the graph says."""
        if values.ndim <= self.axis or values.shape[self.axis] != self.ends[-1]:
            return None
        return np.split(values, self.ends[:-1], self.axis)

    def labels(self, name: str) -> list[str]:
        """What to call the parts of an output, as numpy would be asked for them."""
        before = ":, " * self.axis
        return [f"{name}[{before}{start}:{end}]" for start, end in zip((0, *self.ends), self.ends, strict=False)]


def joins(graph: Graph) -> dict[str, list[Join]]:
    """Output -> the ways in which it is made of parts, those that were joined last first; none for most outputs."""
    tensors = [graph.tensor(name) for name in graph.output_names]
    makers = [graph.producer(tensor) for tensor in tensors]
    if any(maker is not None and maker.op in _LOOKED_THROUGH for maker in makers) and not graph.shapes_known():
        graph = graph.copy()
        graph.infer_shapes()
    return {name: _joins(graph, graph.tensor(name), 0) for name in graph.output_names}


_LOOKED_THROUGH = ("Concat", "Identity", "Cast", "Transpose", "Reshape")


def are_unlike(powers: Iterable[float]) -> bool:
    """Whether parts with these mean squares have to be looked at one by one."""
    told = [power for power in powers if 0 < power < math.inf]
    return len(told) > 1 and max(told) > UNLIKE**2 * min(told)


_DEEPEST = 8
"""Nodes to look back through: what joins results stands at the very end."""


def _joins(graph: Graph, tensor: Any, depth: int) -> list[Join]:
    node, shape = graph.producer(tensor), graph.shape(tensor)
    if node is None or node.domain or shape is None or depth > _DEEPEST:
        return []
    if node.op == "Concat":
        return _of_concat(graph, node, len(shape), depth)
    if node.op not in _LOOKED_THROUGH:
        return []
    found = _joins(graph, node.inputs[0], depth + 1)
    if node.op == "Transpose":
        order = node.attrs.get("perm") or list(range(len(shape)))[::-1]
        return [Join(order.index(join.axis), join.ends) for join in found]
    if node.op == "Reshape":
        before = graph.shape(node.inputs[0]) or ()
        return [join for join in found if before[: join.axis + 1] == shape[: join.axis + 1]]
    return found


def _of_concat(graph: Graph, node: Any, rank: int, depth: int) -> list[Join]:
    axis = int(node.attrs["axis"]) % rank
    lengths = [(graph.shape(read) or (None,) * rank)[axis] for read in node.inputs]
    known = [length for length in lengths if isinstance(length, int) and length > 0]
    found = [Join(axis, tuple(accumulate(known)))] if len(known) == len(lengths) > 1 else []
    # Levels of a detector, one behind the other, are joined of the same parts.
    inner = [_joins(graph, read, depth + 1) for read in node.inputs]
    found += [join for join in inner[0] if join.axis != axis and all(join in others for others in inner[1:])]
    return found
