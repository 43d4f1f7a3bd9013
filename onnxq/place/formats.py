"""Which number format a tensor gets: the scheme's, a rule's own, the unsigned one, or that of the ends of a network."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxq.graph import Graph, Node
from onnxq.types import Backend, OpRule, QuantSpec

_NEVER_NEGATIVE = ("Relu", "Sigmoid", "HardSigmoid", "Softmax", "Softplus", "Abs", "Exp", "Sqrt")
_KEEP_SIGN = (
    "MaxPool",
    "AveragePool",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "ReduceMean",
    "ReduceMax",
    "Reshape",
    "Flatten",
    "Transpose",
    "Squeeze",
    "Unsqueeze",
    "Slice",
    "Split",
    "Identity",
    "Dropout",
    "DepthToSpace",
    "SpaceToDepth",
    "Expand",
    "Tile",
)
"""Never negative where their first input is not."""

_KEEP_SIGN_OF_ALL = ("Add", "Mul", "Concat", "Max", "Sum")


class Formats:
    """The formats of one backend on one graph."""

    def __init__(self, graph: Graph, backend: Backend) -> None:
        self.graph = graph
        self.backend = backend
        self._sign: dict[str, bool] = {}

    def activation(self, tensor: Any, rule: OpRule | None, *, at_end: bool) -> QuantSpec:
        """The format of a tensor computed at run time, for a reader (or maker) with this rule."""
        scheme = self.backend.scheme
        assert scheme.activation is not None
        spec = scheme.activation
        if at_end and scheme.ends is not None:
            spec = scheme.ends[0]
        elif rule is not None and rule.activation_spec is not None:
            spec = rule.activation_spec
        if scheme.unsigned is None or not self.never_negative(tensor):
            return spec
        return scheme.unsigned if spec == scheme.activation else _unsigned(spec)

    def weight(self, rule: OpRule, *, at_end: bool) -> QuantSpec | None:
        scheme = self.backend.scheme
        if at_end and scheme.ends is not None:
            return scheme.ends[1]
        return rule.weight_spec or scheme.weight

    def never_negative(self, tensor: Any) -> bool:
        """Whether no value below zero can occur, as far as the operators tell."""
        pending = [tensor]
        while pending:
            current = pending[-1]
            if current.name in self._sign:
                pending.pop()
                continue
            node = self.graph.producer(current)
            needed = self._decided_by(node)
            if needed is None:
                self._sign[current.name] = node is not None and self._makes_no_negative(node)
                continue
            open_questions = [t for t in needed if t.name not in self._sign]
            if open_questions:
                pending.extend(open_questions)
            else:
                self._sign[current.name] = bool(needed) and all(self._sign[t.name] for t in needed)
        return self._sign[tensor.name]

    def _decided_by(self, node: Node | None) -> list[Any] | None:
        """The inputs whose sign the result has; None when the operator itself decides."""
        if node is None or node.domain:
            return None
        if node.op in _KEEP_SIGN or (node.op == "Resize" and node.attrs.get("mode", "nearest") != "cubic"):
            return [node.inputs[0]]
        if node.op == "Pad":
            with_zero = float(node.attrs.get("value", 0.0)) >= 0 and (len(node.inputs) < 3 or not node.inputs[2].name)
            return [node.inputs[0]] if with_zero else None
        if node.op in _KEEP_SIGN_OF_ALL:
            return [t for t in node.inputs if t.name]
        return None

    def _makes_no_negative(self, node: Node) -> bool:
        if node.domain:
            return False
        if node.op in _NEVER_NEGATIVE:
            return True
        if node.op == "Clip":
            if "min" in node.attrs:
                return float(node.attrs["min"]) >= 0
            low = node.inputs[1] if len(node.inputs) > 1 and node.inputs[1].name else None
            if low is None or not self.graph.is_constant(low):
                return False
            bound = self.graph.values(low)
            return bound.dtype != np.object_ and bool((bound >= 0).all())  # a damaged model may have text there
        return False


def wider(one: QuantSpec, other: QuantSpec) -> QuantSpec:
    """The format with more bits; the first of two with equally many."""
    return other if other.bits > one.bits else one


def _unsigned(spec: QuantSpec) -> QuantSpec:
    """The unsigned form of a narrow format, on targets that hold what cannot be negative without a sign."""
    if spec.grid != "affine" or not spec.signed or not spec.symmetric:
        return spec
    return spec.replace(dtype=f"u{spec.dtype}", narrow_range=False)
