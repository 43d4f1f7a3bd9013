"""What of a segment may be learnt: weights, biases, and scales of activations; and why others may not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxq.graph import Graph
from onnxq.ptq.reconstruction.blocks import Segment
from onnxq.ptq.reconstruction.recipe import Recipe
from onnxq.types import Edge, QuantPlan, QuantSpec

_WITH_BIAS = ("Conv", "ConvTranspose", "Gemm")
_MASK = 1e4


@dataclass(frozen=True)
class Learnable:
    """Names of tensors; `scales` are leaders of ties, weights that are learnt themselves included; the scales of
    `ranges`, which are among the weights, are nobody else's."""

    weights: tuple[str, ...]
    biases: tuple[str, ...]
    scales: tuple[str, ...]
    declined: tuple[str, ...]
    ranges: tuple[str, ...] = ()


class Rules:
    """Answers for the segments of one graph; `plan` is the one that is carried out."""

    def __init__(self, graph: Graph, plan: QuantPlan, segments: Sequence[Segment], recipe: Recipe) -> None:
        self._graph = graph
        self._plan = plan
        self._recipe = recipe
        self._home = {name: number for number, segment in enumerate(segments) for name in segment.nodes}
        self._members: dict[str, list[str]] = {}
        for placement in plan:
            self._members.setdefault(plan.leader(placement.tensor), []).append(placement.tensor)

    def of(self, number: int, segment: Segment) -> Learnable:
        weights, declined = [], []
        for name in segment.weights:
            why = self._why_not(name)
            if why is None:
                weights.append(name)
            else:
                declined.append(f"weight '{name}' stays as it is: {why}")
        scales: list[str] = []
        if self._recipe.scales and weights:
            scales = [leader for leader in self._leaders(segment) if self._is_learnt_here(leader, number)]
        biases: list[str] = []
        if self._recipe.learnt == "weights":
            scales += [name for name in weights if self._plan[name].tie is None and self._alone(name)]
            biases = self._biases(segment)
        ranges = tuple(name for name in weights if self._plan[name].tie is None and self._alone(name))
        return Learnable(tuple(weights), tuple(biases), tuple(scales), tuple(declined), ranges)

    def _why_not(self, weight: str) -> str | None:
        placement = self._plan[weight]
        if not placement.spec.evenly_spaced:
            return f"{placement.spec.dtype} is no format of evenly spaced numbers"
        if placement.edges is not None:
            uses = {Edge(use.node.name, use.port) for use in self._graph.consumers(weight)}
            if not uses <= set(placement.edges):
                return "it is also read without a quantizer"
        return None

    def _leaders(self, segment: Segment) -> list[str]:
        """The quantizers of activations that nodes of the segment read through."""
        found: dict[str, None] = {}
        for name in segment.nodes:
            for port, tensor in enumerate(self._graph.node(name).inputs):
                if tensor.name in self._plan and not self._graph.is_constant(tensor):
                    edges = self._plan[tensor.name].edges
                    if edges is None or Edge(name, port) in edges:
                        found[self._plan.leader(tensor.name)] = None
        return list(found)

    def _is_learnt_here(self, leader: str, number: int) -> bool:
        """A scale belongs to the first segment that reads through it; one that is shared, only if nobody else reads.

        Scales of power-of-two formats are chosen by their exponent, and float16 files round theirs: both stay.
        """
        members = self._members[leader]
        if not _has_free_scale(self._plan[leader].spec) or self._graph.dtype(leader) == np.float16:
            return False
        homes = {self._home.get(name, -1) for member in members for name in self._readers(member)}
        return homes == {number} if len(members) > 1 else min(homes, default=-1) == number

    def _readers(self, tensor: str) -> list[str]:
        edges = self._plan[tensor].edges
        if edges is not None:
            return [edge.node for edge in edges]
        return [use.node.name for use in self._graph.consumers(tensor)]

    def _alone(self, weight: str) -> bool:
        spec = self._plan[weight].spec
        return len(self._members[weight]) == 1 and _has_free_scale(spec) and self._graph.dtype(weight) != np.float16

    def _biases(self, segment: Segment) -> list[str]:
        """What layers add to their results: the third input, or what an Add behind a MatMul adds."""
        graph, found = self._graph, []
        results: set[str] = set()
        for name in segment.nodes:
            node = graph.node(name)
            candidates: Sequence[Any] = ()
            if name in segment.layers:
                results.update(tensor.name for tensor in node.outputs)
                candidates = node.inputs[2:3] if node.op in _WITH_BIAS else ()
            elif node.op == "Add" and any(tensor.name in results for tensor in node.inputs):
                candidates = node.inputs
            for tensor in candidates:
                constant = tensor.name and graph.is_constant(tensor) and graph.dtype(tensor) == np.float32
                if constant and len(graph.consumers(tensor)) == 1 and _is_bias(graph.values(tensor)):
                    found.append(tensor.name)
        return found


def _is_bias(values: np.ndarray) -> bool:
    """Whether numbers are no single constant of a formula and no mask, which has infinities or huge numbers."""
    return values.size > 1 and bool(np.abs(values).max() < _MASK)


def _has_free_scale(spec: QuantSpec) -> bool:
    return spec.evenly_spaced and spec.has_scale and not spec.power_of_two
