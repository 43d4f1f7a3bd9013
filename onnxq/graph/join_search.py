"""The parts of an output, found by walking back from it through everything that only moves values or maps each alone.

Parts come from a Concat; and from a Split or Slice in another branch of the graph, whose author knew them apart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from onnxq.graph.graph import Graph
from onnxq.graph.join import MOST_PARTS, Join
from onnxq.graph.reshaped import place_after

DEEPEST = 16
"""Nodes to look back through: what joins results, and decodes them, stands at the end."""

UNARY = frozenset({
    "Abs", "Cast", "Ceil", "Celu", "Clip", "Dropout", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid",
    "HardSwish", "Identity", "LeakyRelu", "Log", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid",
    "Sign", "Softplus", "Softsign", "Sqrt", "Tanh", "ThresholdedRelu",
})  # fmt: skip
"""Operators that map each value of their first input alone; other inputs are single numbers."""

BROADCAST = frozenset({"Add", "Div", "Max", "Min", "Mod", "Mul", "PRelu", "Pow", "Sub", "Where"})
"""Operators that map values at the same place of several inputs."""

RESHAPE = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})
NORMALIZED = frozenset({"LogSoftmax", "Softmax"})
"""What lies along their axis is of one kind behind them."""

THROUGH = UNARY | BROADCAST | RESHAPE | NORMALIZED | {"Concat", "Slice", "Split", "Transpose"}


def may_have_parts(graph: Graph) -> bool:
    """Whether a Concat, Split or Slice stands near an output, so that shapes are worth knowing."""
    seen: set[str] = set()
    pending = deque((graph.tensor(name), 0) for name in graph.output_names)
    with graph.unchanging():
        while pending:
            tensor, depth = pending.popleft()  # the nearest first: a tensor is looked at once, and by its shortest way
            node = graph.producer(tensor)
            if any(_cuts(use.node) and use.port == 0 for use in graph.consumers(tensor)):
                return True
            if node is None or depth > DEEPEST or tensor.name in seen:
                continue
            seen.add(tensor.name)
            ends = branch_ends(node, tensor)
            if not ends and not is_through(node):
                continue
            if node.op in ("Concat", "Slice", "Split"):
                return True
            pending += [(read, depth + 1) for read in ends or node.inputs]
    return False


class JoinSearch:
    """Joins of one graph, each tensor looked at once for each number of nodes behind it.

    How far the search goes back from a tensor depends on that number, so what was found there does as well.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._found: dict[tuple[str, int], list[Join]] = {}

    def of(self, tensor: Any, depth: int = 0) -> list[Join]:
        """The joins of a tensor, one for each axis, those that were made last first."""
        key = (tensor.name, depth)
        if key not in self._found:
            found = [*self._of(tensor, depth), *self._cut_elsewhere(tensor)]
            first: dict[int, Join] = {}
            for join in found:
                if 1 < len(join.ends) <= MOST_PARTS:
                    first.setdefault(join.axis, join)
            self._found[key] = list(first.values())
        return self._found[key]

    def _of(self, tensor: Any, depth: int) -> list[Join]:
        node, shape = self._graph.producer(tensor), self._graph.shape(tensor)
        if node is None or shape is None or depth > DEEPEST:
            return []
        ways = [self.of(end, depth + 1) for end in branch_ends(node, tensor)]
        if ways:  # parts that the result has whichever way is gone
            return [join for join in ways[0] if all(join in way for way in ways[1:])]
        if not is_through(node):
            return []
        if node.op == "Concat":
            return self._of_concat(node, len(shape), depth)
        if node.op in BROADCAST:
            return self._of_broadcast(node, shape, depth)
        found = self.of(node.inputs[0], depth + 1)
        if node.op == "Transpose":
            order = node.attrs.get("perm") or list(range(len(shape)))[::-1]
            return [Join(order.index(join.axis), join.ends) for join in found if join.axis in order]
        before = self._graph.shape(node.inputs[0])
        if node.op in UNARY or before is None:
            return found if node.op in UNARY else []
        if node.op in RESHAPE:
            moved = [place_after(before, shape, join.axis, join.ends) for join in found]
            return [Join(*one) for one in moved if one is not None]
        if node.op in NORMALIZED:
            axis = softmax_axis(self._graph, node, len(shape))
            return [join for join in found if join.axis != axis]
        return list(self._of_piece(node, tensor, before, found))

    def _of_piece(self, node: Any, tensor: Any, before: Sequence[Any], found: list[Join]) -> Iterator[Join]:
        """Joins of what a Slice or Split takes out."""
        taken = pieces(self._graph, node, before)
        if taken is None:
            return
        number = next((index for index, made in enumerate(node.outputs) if made is tensor), 0)
        for join in found:
            stretches = taken.get(join.axis)
            if stretches is None:
                yield join
                continue
            start, end = stretches[number]
            inside = sorted({min(max(one, start), end) - start for one in join.ends} - {0})
            yield Join(join.axis, tuple(inside))

    def _of_broadcast(self, node: Any, shape: Sequence[Any], depth: int) -> list[Join]:
        """Joins of all inputs: one that has parts along an axis is as long as the result there."""
        ends: dict[int, set[int]] = {}
        for read in node.inputs:
            own = self._graph.shape(read)
            if own is None or len(own) > len(shape):
                continue
            for join in self.of(read, depth + 1):
                ends.setdefault(join.axis + len(shape) - len(own), set()).update(join.ends)
        return [Join(axis, tuple(sorted(places))) for axis, places in ends.items()]

    def _of_concat(self, node: Any, rank: int, depth: int) -> list[Join]:
        shapes = [self._graph.shape(read) for read in node.inputs]
        if not rank or any(shape is not None and len(shape) != rank for shape in shapes):
            return []  # a file may declare shapes that are not true
        axis = int(node.attrs.get("axis", 1)) % rank
        inner = [self.of(read, depth + 1) for read in node.inputs]
        ends: list[int] = []
        outer: list[int] = []
        for read, shape, joined in zip(node.inputs, shapes, inner, strict=True):
            length = self._single(read, axis, rank) if shape is None else shape[axis]
            if not isinstance(length, int) or length <= 0:
                ends = outer = []
                break
            # What was joined along the same axis before are parts of the whole.
            own = next((join.ends for join in joined if join.axis == axis), (length,))
            start = outer[-1] if outer else 0
            ends.extend(start + end for end in own)
            outer.append(start + length)
        found = [Join(axis, tuple(ends if len(ends) <= MOST_PARTS else outer))] if len(ends) > 1 else []
        # Levels of a detector, one behind the other, are joined of the same parts.
        return found + [join for join in inner[0] if join.axis != axis and all(join in one for one in inner[1:])]

    def _single(self, tensor: Any, axis: int, rank: int) -> int | None:
        """The length of an axis that an Unsqueeze has made, which is known whatever it was made of."""
        node = self._graph.producer(tensor)
        if node is None or node.op != "Unsqueeze" or node.domain:
            return None
        axes = node.attrs.get("axes") or _integers(self._graph, node, 1) or ()
        return 1 if axis in [one % rank for one in axes] else None

    def _cut_elsewhere(self, tensor: Any) -> Iterator[Join]:
        """Parts that another branch takes out of a tensor."""
        shape = self._graph.shape(tensor)
        places: dict[int, set[int]] = {}
        for use in self._graph.consumers(tensor):
            taken = pieces(self._graph, use.node, shape) if use.port == 0 and shape is not None else None
            for axis, stretches in (taken or {}).items():
                places.setdefault(axis, set()).update(place for stretch in stretches for place in stretch)
        for axis, found in places.items():
            length = None if shape is None else shape[axis]
            if isinstance(length, int):
                yield Join(axis, tuple(sorted({*found, length} - {0})))


def pieces(graph: Graph, node: Any, before: Sequence[Any]) -> dict[int, list[tuple[int, int]]] | None:
    """Axis -> the stretch that each output of a Slice or Split takes; None for other nodes, and where it is not known.

    Only axes of which something is left out or divided are there.
    """
    if not _cuts(node):
        return None
    if node.op == "Split":
        return _split(graph, node, before)
    starts, ends = _integers(graph, node, 1), _integers(graph, node, 2)
    axes = _integers(graph, node, 3) if len(node.inputs) > 3 and node.inputs[3].name else None
    steps = _integers(graph, node, 4) if len(node.inputs) > 4 and node.inputs[4].name else None
    if starts is None or ends is None or (steps is not None and any(step != 1 for step in steps)):
        return None
    if (axes is None and len(node.inputs) > 3 and node.inputs[3].name) or (
        steps is None and len(node.inputs) > 4 and node.inputs[4].name
    ):
        return None  # known only when the model runs
    found = {}
    for number, axis in enumerate(range(len(starts)) if axes is None else axes):
        length = before[axis] if -len(before) <= axis < len(before) else None
        if not isinstance(length, int):
            if starts[number] == 0 and ends[number] >= np.iinfo(np.int32).max:
                continue  # all of it
            return None
        start, end, _ = slice(starts[number], ends[number]).indices(length)
        if end <= start:
            return None
        if (start, end) != (0, length):
            found[axis % len(before)] = [(start, end)]
    return found


def _split(graph: Graph, node: Any, before: Sequence[Any]) -> dict[int, list[tuple[int, int]]] | None:
    axis = int(node.attrs.get("axis", 0))
    length = before[axis] if -len(before) <= axis < len(before) else None
    if not isinstance(length, int) or length <= 0:
        return None
    if len(node.inputs) > 1 and node.inputs[1].name:
        sizes = _integers(graph, node, 1)
    else:
        each = -(-length // len(node.outputs))
        sizes = node.attrs.get("split") or [min(each, length - each * index) for index in range(len(node.outputs))]
    if sizes is None or len(sizes) != len(node.outputs) or sum(sizes) != length or min(sizes) <= 0:
        return None
    ends = [sum(sizes[: index + 1]) for index in range(len(sizes))]
    return {axis % len(before): list(zip((0, *ends), ends, strict=False))}


def softmax_axis(graph: Graph, node: Any, rank: int) -> int:
    """The axis along which a Softmax makes values add up to 1; up to opset 12 it was all from the axis on."""
    return int(node.attrs.get("axis", -1 if graph.opset >= 13 else 1)) % max(rank, 1)


def _integers(graph: Graph, node: Any, port: int) -> list[int] | None:
    if port >= len(node.inputs) or not graph.is_constant(node.inputs[port]):
        return None
    return [int(value) for value in graph.values(node.inputs[port]).ravel()]


def _cuts(node: Any) -> bool:
    return not node.domain and node.op in ("Slice", "Split")


def branch_ends(node: Any, tensor: Any) -> list[Any]:
    """What the branches of an If give for one of its outputs; empty for any other node."""
    if node.domain or node.op != "If":
        return []
    number = next((index for index, made in enumerate(node.outputs) if made is tensor), 0)
    return [node.attrs[branch].outputs[number] for branch in ("then_branch", "else_branch")]


def is_through(node: Any) -> bool:
    """Whether a node only moves values, or maps each alone."""
    return not node.domain and node.op in THROUGH
