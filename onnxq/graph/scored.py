"""Which results of a model are scores, by how the graph ends: what a caller decides by them is known then.

    probabilities   behind a Softmax or LogSoftmax: one of the classes along its axis is chosen
    independent     behind a Sigmoid, or a product of such: each value says how sure something is
    logits          behind a fully connected layer, of rank 2 or 3, and no other output ends as scores do: probably
                    classes along the last axis

Boxes and other regressions end in none of these, or are taken for logits, which their values have to tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from onnxq.graph.graph import Graph
from onnxq.graph.join_search import DEEPEST, NORMALIZED, RESHAPE, pieces, softmax_axis
from onnxq.graph.reshaped import place_after

ScoreKind = Literal["probabilities", "independent", "logits"]
Stretch = tuple[int, int, int]
"""An axis with the first index on it and the one behind the last."""

_UNCHANGED = ("Identity", "Cast", "Dropout")
_SIGMOIDS = ("Sigmoid", "HardSigmoid")
_POOLS = ("GlobalAveragePool", "GlobalMaxPool")
_BROADCASTS = 4
"""Nodes that may stand between a sum and its use."""
_BOX = 4
"""Numbers that a box has; a transformer's boxes end in a Sigmoid too."""


@dataclass(frozen=True)
class Scores:
    """`axis` is that of the classes; None for independent scores."""

    kind: ScoreKind
    axis: int | None = None


def scores_of(graph: Graph, output: str, stretch: Stretch | None = None) -> Scores | None:
    """What scores an output, or a stretch of it, holds; None where it does not look like any."""
    tensor, shape = graph.tensor(output), graph.shape(output)
    found = _Endings(graph).of(tensor, stretch, 0)
    if found is None or shape is None:
        return found if found is not None and found.kind == "independent" else None
    if found.kind == "logits":
        is_classes = stretch is None and len(shape) in (2, 3) and found.axis == len(shape) - 1
        return found if is_classes and not _has_known_scores(graph) else None
    if found.kind == "independent" and stretch is None and len(shape) == 3 and shape[-1] == _BOX:
        return None
    return found


def _has_known_scores(graph: Graph) -> bool:
    """Whether an output ends as scores do: what ends in a plain layer beside it is something else, boxes say."""
    endings = _Endings(graph)
    found = [endings.of(graph.tensor(name), None, 0) for name in graph.output_names]
    return any(one is not None and one.kind != "logits" for one in found)


class _Endings:
    """The operator behind which a result is, looking back through what only moves values."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def of(self, tensor: Any, stretch: Stretch | None, depth: int) -> Scores | None:
        node, shape = self._graph.producer(tensor), self._graph.shape(tensor)
        if node is None or node.domain or depth > DEEPEST:
            return None
        if node.op in _UNCHANGED:
            return self.of(node.inputs[0], stretch, depth + 1)
        if node.op in _SIGMOIDS:
            return Scores("independent")
        if node.op == "Mul":
            both = [self.of(read, None, depth + 1) for read in node.inputs]
            return Scores("independent") if all(one == Scores("independent") for one in both) else None
        if shape is None:
            return None
        if node.op in NORMALIZED:
            axis = softmax_axis(self._graph, node, len(shape))
            together = self._graph.opset < 13 and any(size != 1 for size in shape[axis + 1 :])
            return None if together else Scores("probabilities", axis)
        if node.op == "Div":
            summed = self._softmax_in_pieces(node)
            return None if summed is None else Scores("probabilities", summed % len(shape))
        if node.op == "Concat":
            return self._of_concat(node, len(shape), stretch, depth)
        if node.op == "Transpose":
            return self._of_transpose(node, len(shape), stretch, depth)
        if node.op in RESHAPE:
            return self._of_reshape(node, shape, stretch, depth)
        if node.op in ("Slice", "Split"):
            return self._of_piece(node, tensor, stretch, depth)
        return Scores("logits", _class_axis(node, shape)) if self._is_classifier(node, shape) else None

    def _of_concat(self, node: Any, rank: int, stretch: Stretch | None, depth: int) -> Scores | None:
        axis = int(node.attrs.get("axis", 1)) % max(rank, 1)
        found = []
        start = 0
        for read in node.inputs:
            inner = stretch
            if stretch is not None and stretch[0] == axis:
                length = (self._graph.shape(read) or (None,) * rank)[axis]
                if not isinstance(length, int):
                    return None
                first, last = max(stretch[1] - start, 0), min(stretch[2] - start, length)
                start += length
                if first >= last:
                    continue
                inner = (axis, first, last)
            found.append(self.of(read, inner, depth + 1))
        return found[0] if found and all(one == found[0] for one in found) else None

    def _of_transpose(self, node: Any, rank: int, stretch: Stretch | None, depth: int) -> Scores | None:
        order = [int(axis) for axis in node.attrs.get("perm") or list(range(rank))[::-1]]
        if sorted(order) != list(range(rank)):
            return None
        inner = None if stretch is None else (order[stretch[0]], *stretch[1:])
        found = self.of(node.inputs[0], inner, depth + 1)
        return found if found is None or found.axis is None else Scores(found.kind, order.index(found.axis))

    def _of_reshape(self, node: Any, shape: tuple[Any, ...], stretch: Stretch | None, depth: int) -> Scores | None:
        before = self._graph.shape(node.inputs[0])
        if before is None:
            return None
        inner = None
        if stretch is not None:
            moved = place_after(shape, before, stretch[0], stretch[1:])
            if moved is None:
                return None
            inner = (moved[0], moved[1][0], moved[1][1])
        found = self.of(node.inputs[0], inner, depth + 1)
        if found is None or found.axis is None:
            return found
        length = before[found.axis]
        placed = place_after(before, shape, found.axis, [length]) if isinstance(length, int) else None
        return Scores(found.kind, placed[0]) if placed is not None and shape[placed[0]] == length else None

    def _of_piece(self, node: Any, tensor: Any, stretch: Stretch | None, depth: int) -> Scores | None:
        before = self._graph.shape(node.inputs[0])
        taken = None if before is None else pieces(self._graph, node, before)
        if taken is None:
            return None
        number = next((index for index, made in enumerate(node.outputs) if made is tensor), 0)
        inner = stretch
        for axis, stretches in taken.items():
            start, end = stretches[number]
            if inner is None:
                inner = (axis, start, end)
            elif inner[0] == axis and stretch is not None:
                inner = (axis, stretch[1] + start, stretch[2] + start)
        return self.of(node.inputs[0], inner, depth + 1)

    def _softmax_in_pieces(self, node: Any) -> int | None:
        """The axis of a Softmax that is written as Exp and a division by its sum."""
        above, below = node.inputs
        for _ in range(_BROADCASTS):
            maker = self._graph.producer(below)
            if maker is not None and maker.op == "ReduceSum" and maker.inputs[0] is above:
                given = maker.attrs.get("axes")
                if len(maker.inputs) > 1 and self._graph.is_constant(maker.inputs[1]):
                    given = self._graph.values(maker.inputs[1]).ravel()
                source = self._graph.producer(above)
                is_exp = source is not None and source.op == "Exp"
                return int(given[0]) if is_exp and given is not None and len(given) == 1 else None
            if maker is None or maker.op not in (*_UNCHANGED, *RESHAPE, "Expand"):
                return None
            below = maker.inputs[0]
        return None

    def _is_classifier(self, node: Any, shape: tuple[Any, ...]) -> bool:
        """Whether a node is a fully connected layer, also written as a convolution of or in front of one position."""
        if node.op == "Add":
            made = [self._graph.producer(read) for read in node.inputs]
            one = next((maker for maker in made if maker is not None and maker.op == "MatMul"), None)
            return one is not None and any(map(self._graph.is_constant, node.inputs)) and self._has_weights(one)
        if node.op in _POOLS:
            maker = self._graph.producer(node.inputs[0])
            if maker is not None and maker.op in ("Relu", "Clip"):
                maker = self._graph.producer(maker.inputs[0])
            return maker is not None and maker.op == "Conv"
        if node.op == "Conv":
            return len(shape) > 2 and all(size == 1 for size in shape[2:])
        return node.op in ("Gemm", "MatMul") and not node.domain and self._has_weights(node)

    def _has_weights(self, node: Any) -> bool:
        weight = node.inputs[1]
        maker = self._graph.producer(weight)
        return bool(
            self._graph.is_constant(weight)
            or (maker is not None and maker.op == "Transpose" and self._graph.is_constant(maker.inputs[0]))
        )


def _class_axis(node: Any, shape: tuple[Any, ...]) -> int:
    return 1 if node.op in ("Conv", *_POOLS) else len(shape) - 1
