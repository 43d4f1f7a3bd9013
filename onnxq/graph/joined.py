"""Outputs that several results were joined to by a Concat: where each of them lies.

A detector gives boxes and scores as one tensor. Coordinates of hundreds of pixels and scores below 1 have nothing in
common but the tensor: an error of the whole is that of the boxes, whatever became of the scores. So each such part is
evaluated as if it were an output.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from onnxq.graph.graph import Graph
from onnxq.graph.join import MOST_PARTS, Join
from onnxq.graph.join_search import JoinSearch, is_through, may_have_parts

__all__ = ["MOST_PARTS", "Join", "evaluated_parts", "joins", "with_shapes"]

UNLIKE_DB = 10.0
"""Parts are unlike where one has this much more power than another: an error that leaves the larger one 15 dB leaves
the smaller one no more than 5."""


def with_shapes(graph: Graph) -> Graph:
    """The graph, or a copy of it with its shapes, where parts of an output and what ends it may be found by them.

    Names that a file gives to the sizes of outputs say less than what is inferred.
    """
    named = [name for name in graph.output_names if any(isinstance(size, str) for size in graph.shape(name) or ())]
    if not (may_have_parts(graph) or _ends_unknown(graph)) or (graph.shapes_known() and not named):
        return graph
    graph = graph.copy()
    declared = {name: graph.tensor(name).shape for name in named if graph.producer(name) is not None}
    for name in declared:
        graph.tensor(name).shape = None
    graph.infer_shapes()
    for name, shape in declared.items():
        if graph.shape(name) is None:
            graph.tensor(name).shape = shape
    return graph


def _ends_unknown(graph: Graph) -> bool:
    """Whether an output is behind something that moves values, or maps each alone, of unknown shape."""
    makers = [graph.producer(name) for name in graph.output_names]
    return any(is_through(node) and graph.shape(node.inputs[0]) is None for node in makers if node is not None)


def joins(graph: Graph) -> dict[str, list[Join]]:
    """Output -> the ways in which it is made of parts, those that were joined last first; none for most outputs."""
    graph = with_shapes(graph)
    with graph.unchanging():
        search = JoinSearch(graph)
        return {name: search.of(graph.tensor(name)) for name in graph.output_names}


def evaluated_parts(found: Sequence[Join], powers: Callable[[Join], Sequence[float]]) -> tuple[Join, list[int]] | None:
    """The parts of an output that are evaluated by themselves, and which of them tell anything; None if all are alike.

    `powers` gives the mean squares of the float model's parts. Of levels and kinds, what is less alike is taken, and
    neighbours of one size are one part: the two coordinates of a centre, say.
    """
    spread = [(_spread(values), -number, join, values) for number, join in enumerate(found) if (values := powers(join))]
    if not spread:
        return None
    most, _, join, values = max(spread, key=lambda one: one[:2])
    if most <= UNLIKE_DB:
        return None
    runs: list[list[float]] = []
    ends: list[int] = []
    for power, end in zip(values, join.ends, strict=True):
        if runs and all(0 < one < math.inf for one in (*runs[-1], power)) and _spread([*runs[-1], power]) <= UNLIKE_DB:
            runs[-1].append(power)
            ends[-1] = end
        else:
            runs.append([power])
            ends.append(end)
    return Join(join.axis, tuple(ends)), [index for index, run in enumerate(runs) if any(run)]


def _spread(powers: Sequence[float]) -> float:
    """By how many dB the powers of parts differ; those without any signal tell nothing."""
    told = [power for power in powers if 0 < power < math.inf]
    return 10 * math.log10(max(told) / min(told)) if len(told) > 1 else 0.0
