"""Outputs that several results were joined to by a Concat: where each of them lies.

A detector gives boxes and scores as one tensor. Coordinates of hundreds of pixels and scores below 1 have nothing in
common but the tensor: an error of the whole is that of the boxes, whatever became of the scores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
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
    search = _Search(graph)
    return {name: search.of(graph.tensor(name)) for name in graph.output_names}


_LOOKED_THROUGH = ("Concat", "Identity", "Cast", "Transpose", "Reshape")
_DEEPEST = 8
"""Nodes to look back through: what joins results stands at the very end."""

MOST_PARTS = 8
"""More parts than a detector has kinds of results are steps or levels, of one kind."""


def unlike(powers: Sequence[float]) -> list[int]:
    """Which parts, by their mean squares, have to be looked at one by one: none where they are of one size.

    Parts without any signal tell nothing, whether about the sizes or about the errors.
    """
    told = [power for power in powers if 0 < power < math.inf]
    if len(told) < 2 or max(told) <= UNLIKE**2 * min(told):
        return []
    return [index for index, power in enumerate(powers) if power != 0]


class _Search:
    """Joins of one graph, each tensor looked at once."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._found: dict[str, list[Join]] = {}

    def of(self, tensor: Any, depth: int = 0) -> list[Join]:
        if tensor.name not in self._found:
            self._found[tensor.name] = [join for join in self._of(tensor, depth) if len(join.ends) <= MOST_PARTS]
        return self._found[tensor.name]

    def _of(self, tensor: Any, depth: int) -> list[Join]:
        node, shape = self._graph.producer(tensor), self._graph.shape(tensor)
        if node is None or node.domain or node.op not in _LOOKED_THROUGH or shape is None or depth > _DEEPEST:
            return []
        if node.op == "Concat":
            return self._of_concat(node, len(shape), depth)
        found = self.of(node.inputs[0], depth + 1)
        if node.op == "Transpose":
            order = node.attrs.get("perm") or list(range(len(shape)))[::-1]
            return [Join(order.index(join.axis), join.ends) for join in found if join.axis in order]
        if node.op == "Reshape":
            before = self._graph.shape(node.inputs[0]) or ()
            return [join for join in found if before[: join.axis + 1] == shape[: join.axis + 1]]
        return found

    def _of_concat(self, node: Any, rank: int, depth: int) -> list[Join]:
        shapes = [self._graph.shape(read) for read in node.inputs]
        if not rank or any(shape is not None and len(shape) != rank for shape in shapes):
            return []  # a file may declare shapes that are not true
        axis = int(node.attrs.get("axis", 1)) % rank
        inner = [self.of(read, depth + 1) for read in node.inputs]
        ends: list[int] = []
        for read, joined in zip(node.inputs, inner, strict=True):
            length = (self._graph.shape(read) or (None,) * rank)[axis]
            if not isinstance(length, int) or length <= 0:
                ends = []
                break
            # What was joined along the same axis before are parts of the whole.
            own = next((join.ends for join in joined if join.axis == axis), (length,))
            start = ends[-1] if ends else 0
            ends.extend(start + end for end in own)
        found = [Join(axis, tuple(ends))] if len(ends) > 1 else []
        # Levels of a detector, one behind the other, are joined of the same parts.
        return found + [join for join in inner[0] if join.axis != axis and all(join in one for one in inner[1:])]
