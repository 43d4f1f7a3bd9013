"""Joins of tensors whose ranges differ so much that one scale loses one of them, seen in the data.

A detector ends in a Concat of boxes (0 to 640) and scores (0 to 1). With one 8-bit scale for both, a step is larger
than any score. Where no weighted layer stands behind such a join, the join and all that follows it stay float, and its
inputs keep the scales that they have of their own: on a chip this is the tail that the host runs, or the chip's float
units do. In front of a weighted layer one scale is what the layer takes, so such a join is left as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from onnxq.errors import UnsupportedError
from onnxq.graph import Graph, Node
from onnxq.graph.operator_kinds import LAYERS
from onnxq.types import Backend, PerTensor, QParams, QParamsTable, QuantPlan
from onnxq.types.unlike import JoinMember, UnlikeJoin

FEWEST_STEPS = 16.0
"""A tensor that reaches fewer steps has less than 4 bits left. Of formats of less than 8 bits, half of the bits."""

DEAD_STEPS = 2.0
"""A tensor that reaches fewer steps says next to nothing: without a scale of its own, the model is refused."""

_MOVES = frozenset(
    ("DepthToSpace", "Expand", "Flatten", "Gather", "Identity", "MaxPool", "Reshape", "Slice", "SpaceToDepth", "Split",
     "Squeeze", "Tile", "Transpose", "Unsqueeze")
)  # fmt: skip
"""What comes out lies within the range of what went in: that range is never too small."""

Ranges = Callable[[str], tuple[float, float] | None]
"""Tensor -> its smallest and largest value in the data; None if it was not observed."""


def unlike_joins(graph: Graph, plan: QuantPlan, qparams: QParamsTable, ranges: Ranges) -> list[UnlikeJoin]:
    """Quantized joins that lose one of their inputs, without a weighted layer behind them, in graph order."""
    with graph.unchanging():
        found = (
            _unlike(graph, node, qparams[node.outputs[0].name], ranges)
            for node in graph.nodes("Concat")
            if not node.domain and _has_one_scale(plan, node.outputs[0].name)
        )
        return [join for join in found if join is not None]


def refuse_without_float(joins: Iterable[UnlikeJoin], graph: Graph, backend: Backend) -> None:
    """Raise UnsupportedError with the place to cut, for a target that computes everything in integers.

    Where all inputs of a join have some steps left, the limit of the outputs decides.
    """
    dead = (join for join in joins if any(0 < member.steps < DEAD_STEPS for member in join.members))
    join = next(dead, None)
    if join is None or not backend.integers_only:
        return
    ends = ", ".join(f"'{member.tensor}'" for member in join.members if not graph.is_constant(member.tensor))
    more = f" and {len(join.tail) - 5} more" if len(join.tail) > 5 else ""
    listed = ", ".join(f"'{name}'" for name in join.tail[:5]) + more
    raise UnsupportedError(
        f"{join}. {backend.name} has no float layers and no wider format that the tail of the model could be kept in. "
        f"Cut the model: let it end with {ends} (onnx.utils.extract_model writes such a model), and run {listed} on "
        f"the host. Or keep the whole and leave the tail to the host with --skip '{join.node}'"
    )


def _has_one_scale(plan: QuantPlan, tensor: str) -> bool:
    placement = plan.placements.get(tensor)
    if placement is None or placement.edges == ():
        return False
    return placement.spec.has_scale and placement.spec.evenly_spaced and placement.spec.granularity == PerTensor()


def _unlike(graph: Graph, node: Node, qparams: QParams, ranges: Ranges) -> UnlikeJoin | None:
    scale = float(qparams.scale.max())
    members = []
    for tensor in node.inputs:
        found = _range(graph, tensor, ranges)
        if found is not None:
            members.append(JoinMember(str(tensor.name), *found, max(-found[0], found[1]) / scale))
    fewest = min(FEWEST_STEPS, math.sqrt(qparams.spec.qmax - qparams.spec.qmin + 1))
    # A tensor without any signal has nothing to lose, and where none is large the scale comes from another join.
    lost = any(0 < member.steps < fewest for member in members)
    if not lost or not any(member.steps >= fewest for member in members):
        return None
    tail = _tail(graph, node)
    names = tuple(str(each.name) for each in tail)
    join = UnlikeJoin(str(node.name), str(node.outputs[0].name), scale, fewest, tuple(members), names)
    return None if any(_computes_further(graph, each) for each in tail) else join


def _range(graph: Graph, tensor: Any, ranges: Ranges) -> tuple[float, float] | None:
    """The range of a tensor: of a constant, as observed, or that of the observed tensors whose values it moves."""
    while True:
        if graph.is_constant(tensor):
            values = np.asarray(graph.values(tensor), dtype=np.float64)
            finite = values[np.isfinite(values)]
            return (float(finite.min()), float(finite.max())) if finite.size else None
        found = ranges(str(tensor.name))
        if found is not None:
            return found
        maker = graph.producer(tensor)
        if maker is not None and maker.op == "Concat" and not maker.domain:
            parts = [_range(graph, read, ranges) for read in maker.inputs]
            known = [part for part in parts if part is not None]
            return (min(low for low, _ in known), max(high for _, high in known)) if len(known) == len(parts) else None
        if maker is None or maker.domain or maker.op not in _MOVES:
            return None
        tensor = maker.inputs[0]


def _computes_further(graph: Graph, node: Node) -> bool:
    """Whether a node is a weighted layer, or in a body, whose results are not followed."""
    return node.op in LAYERS or graph.scope_of(node) is not graph.gs


def _tail(graph: Graph, join: Node) -> list[Node]:
    """The join and every node that its result reaches."""
    found, seen = [join], {join.name}
    for node in found:  # which grows
        for made in node.outputs:
            for use in graph.consumers(made):
                if use.node.name not in seen:
                    seen.add(use.node.name)
                    found.append(use.node)
    return found
