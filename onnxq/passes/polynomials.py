"""What a few arithmetic nodes compute, as a polynomial in two tensors, whatever the order and grouping of the nodes.

0.5 * x * (1 + g), (x * g + x) / 2 and x * (0.5 + g * 0.5) are all {(1, 0): 0.5, (1, 1): 0.5}: the exponents of x and g,
and their factor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from onnxq.graph import Graph, Node
from onnxq.passes.edits import scalar

Polynomial = dict[tuple[int, int], float]

X: Polynomial = {(1, 0): 1.0}
G: Polynomial = {(0, 1): 1.0}

ARITHMETIC = frozenset({"Add", "Sub", "Mul", "Div", "Pow", "Neg", "Cast"})

_MAX_DEPTH = 8
_MAX_DEGREE = 4
# bfloat16 constants are off by up to 0.4 % each, and two of them are multiplied in the tanh form of Gelu.
_TOLERANCE = 1e-2


class Expander:
    """Expands tensors into polynomials; `nodes` are the arithmetic nodes on the way, in the order they run."""

    def __init__(self, graph: Graph, symbols: Mapping[int, Polynomial]) -> None:
        self._graph = graph
        self._known: dict[int, Polynomial | None] = dict(symbols)
        self.nodes: list[Node] = []

    def expand(self, tensor: Any, depth: int = 0) -> Polynomial | None:
        """The polynomial of a tensor; None when it depends on anything but the symbols and numbers."""
        if id(tensor) not in self._known:
            self._known[id(tensor)] = None if depth > _MAX_DEPTH else self._compute(tensor, depth)
        return self._known[id(tensor)]

    def _compute(self, tensor: Any, depth: int) -> Polynomial | None:
        number = scalar(self._graph, tensor)
        if number is not None:
            return {(0, 0): number}
        node = self._graph.producer(tensor)
        if node is None or node.domain or node.op not in ARITHMETIC:
            return None
        parts = [self.expand(operand, depth + 1) for operand in node.inputs]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        value = _apply(node.op, known)
        if value is not None:
            self.nodes.append(node)
        return value


def same(left: Polynomial | None, right: Polynomial) -> bool:
    """Whether two polynomials agree up to the rounding of constants in half precision."""
    if left is None:
        return False
    terms = {key: value for key, value in left.items() if abs(value) > 1e-6}
    return terms.keys() == right.keys() and all(
        math.isclose(terms[key], right[key], rel_tol=_TOLERANCE) for key in right
    )


def _apply(op: str, operands: list[Polynomial]) -> Polynomial | None:
    left = operands[0]
    if op == "Cast":
        return left
    if op == "Neg":
        return _scale(left, -1.0)
    right = operands[1]
    if op == "Add":
        return _add(left, right)
    if op == "Sub":
        return _add(left, _scale(right, -1.0))
    if op == "Mul":
        return _multiply(left, right)
    number = right.get((0, 0)) if right.keys() == {(0, 0)} else None
    if op == "Div":
        return _scale(left, 1.0 / number) if number else None
    if number is None or number not in range(1, _MAX_DEGREE + 1):
        return None
    power: Polynomial | None = {(0, 0): 1.0}
    for _ in range(int(number)):
        power = None if power is None else _multiply(power, left)
    return power


def _add(left: Polynomial, right: Polynomial) -> Polynomial:
    return {key: left.get(key, 0.0) + right.get(key, 0.0) for key in {**left, **right}}


def _scale(terms: Polynomial, factor: float) -> Polynomial:
    return {key: value * factor for key, value in terms.items()}


def _multiply(left: Polynomial, right: Polynomial) -> Polynomial | None:
    product: Polynomial = {}
    for (i, j), a in left.items():
        for (k, m), b in right.items():
            key = (i + k, j + m)
            product[key] = product.get(key, 0.0) + a * b
    return product if all(sum(key) <= _MAX_DEGREE for key in product) else None
