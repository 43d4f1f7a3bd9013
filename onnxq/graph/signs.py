"""Which tensors can hold no value below zero, as far as the operators that make them tell."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxq.graph.graph import Graph
from onnxq.graph.nodes import Node

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


class Signs:
    """What is known about the signs in one graph; each tensor is looked at once."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._sign: dict[str, bool] = {}

    def never_negative(self, tensor: Any) -> bool:
        """Whether no value below zero can occur."""
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
