"""Which number format a tensor gets: the scheme's, a rule's own, the unsigned one, or that of the ends of a network."""

from __future__ import annotations

from typing import Any

from onnxq.graph import Graph
from onnxq.graph.signs import Signs
from onnxq.types import Backend, OpRule, QuantSpec


class Formats:
    """The formats of one backend on one graph."""

    def __init__(self, graph: Graph, backend: Backend) -> None:
        self.graph = graph
        self.backend = backend
        self._signs = Signs(graph)

    def activation(self, tensor: Any, rule: OpRule | None, *, at_end: bool) -> QuantSpec:
        """The format of a tensor computed at run time, for a reader (or maker) with this rule."""
        scheme = self.backend.scheme
        assert scheme.activation is not None
        spec = scheme.activation
        if at_end and scheme.ends is not None:
            spec = scheme.ends[0]
        elif rule is not None and rule.activation_spec is not None:
            spec = rule.activation_spec
        if scheme.unsigned is None or not self._signs.never_negative(tensor):
            return spec
        return scheme.unsigned if spec == scheme.activation else _unsigned(spec)

    def weight(self, rule: OpRule, *, at_end: bool) -> QuantSpec | None:
        scheme = self.backend.scheme
        if at_end and scheme.ends is not None:
            return scheme.ends[1]
        return rule.weight_spec or scheme.weight


def wider(one: QuantSpec, other: QuantSpec) -> QuantSpec:
    """The format with more bits; the first of two with equally many."""
    return other if other.bits > one.bits else one


def _unsigned(spec: QuantSpec) -> QuantSpec:
    """The unsigned form of a narrow format, on targets that hold what cannot be negative without a sign."""
    unsigned = spec.format.unsigned
    if unsigned is None or not spec.symmetric:
        return spec
    return spec.replace(dtype=unsigned, narrow_range=False)
