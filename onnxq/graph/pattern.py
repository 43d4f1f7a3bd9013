"""Patterns over operators: a small tree of `Op`, `Any` and `Const`, matched from the last node upwards.

    Op("Mul", Any("x"), Op("Sigmoid", Any("x")))          SiLU: both x must be the same tensor
    Op("Div", Any("x"), Const(1.41421356))                x / sqrt(2)
    parse_pattern("Conv -> BatchNormalization -> Relu|Clip")   a chain; `|` separates alternatives

Operators are those of the default ONNX domain; others are spelled with theirs: "com.microsoft::Gelu". Inputs that a
pattern does not list may be anything. Add and Mul match in either order. Values computed inside a match must not be
read outside of it, except the last one, so that the match can be replaced as a whole; for the same reason all its nodes
lie in one graph or body.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from typing import Any as AnyValue

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.errors import ConfigError

if TYPE_CHECKING:
    from onnxq.graph.query import Lookup

_COMMUTATIVE = {"Add", "Mul"}
_LARGEST_VALUE = 4096
_OPERATOR = re.compile(r"([\w.]+::)?\w+")


class Pattern:
    """Base of the three kinds of pattern."""


@dataclass(frozen=True)
class Any(Pattern):
    """Any tensor (an omitted input is none); the same name twice means the same tensor twice."""

    name: str | None = None


@dataclass(frozen=True)
class Const(Pattern):
    """A constant; with `value`, one of at most 4096 elements that are all near it (relative tolerance)."""

    value: float | None = None
    name: str | None = None
    tolerance: float = 1e-3


@dataclass(frozen=True, init=False)
class Op(Pattern):
    """A node of one of the operators in `ops` ("Relu|Clip"), fed by `inputs`; `name` makes it findable in the match."""

    ops: tuple[str, ...]
    inputs: tuple[Pattern, ...]
    name: str | None
    attrs: tuple[tuple[str, AnyValue], ...]
    any_port: bool

    def __init__(
        self, ops: str, *inputs: Pattern, name: str | None = None, any_port: bool = False, **attrs: AnyValue
    ) -> None:
        object.__setattr__(self, "ops", tuple(part.strip() for part in ops.split("|")))
        object.__setattr__(self, "inputs", inputs)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "attrs", tuple(sorted(attrs.items())))
        object.__setattr__(self, "any_port", any_port)


@dataclass(frozen=True)
class Match:
    """One place where a pattern fits: `nodes` in order (the last makes `output`), and what its names stand for."""

    nodes: tuple[gs.Node, ...]
    tensors: dict[str, gs.Tensor] = field(default_factory=dict)
    named_nodes: dict[str, gs.Node] = field(default_factory=dict)

    @property
    def output(self) -> gs.Tensor:
        return self.nodes[-1].outputs[0]

    def __getitem__(self, name: str) -> gs.Tensor:
        return self.tensors[name]


def parse_pattern(text: str) -> Op:
    """Read "Conv -> BatchNormalization -> Relu|Clip"."""
    steps = [step.strip() for step in text.split("->")]
    if not all(_OPERATOR.fullmatch(part.strip()) for step in steps for part in step.split("|")):
        raise ConfigError(f"pattern '{text}' must be operator names joined by '->', with '|' between alternatives")
    pattern = Op(steps[0])
    for step in steps[1:]:
        pattern = Op(step, pattern, any_port=True)
    return pattern


def find_pattern(graph: Lookup, pattern: Pattern) -> list[Match]:
    """Every match in graph order; no node is in two matches (the later root wins)."""
    if not isinstance(pattern, Op):
        raise ConfigError("a pattern must end in an Op: a lone tensor matches nothing")
    taken: set[int] = set()
    found = []
    for node in reversed(graph.nodes()):
        if id(node) not in taken:
            match = match_at(graph, pattern, node)
            if match is not None and not any(id(inner) in taken for inner in match.nodes):
                taken.update(id(inner) for inner in match.nodes)
                found.append(match)
    return found[::-1]


def match_at(graph: Lookup, pattern: Op, root: gs.Node) -> Match | None:
    """The match whose last node is `root`, or None."""
    for state in _match_node(graph, pattern, root, _State({}, {}, ())):
        nodes = tuple(dict.fromkeys(state.nodes))
        if _is_closed(graph, nodes):
            return Match(nodes, state.tensors, state.named)
    return None


@dataclass(frozen=True)
class _State:
    tensors: dict[str, gs.Tensor]
    named: dict[str, gs.Node]
    nodes: tuple[gs.Node, ...]


def _match_node(graph: Lookup, pattern: Op, node: gs.Node, state: _State) -> Iterator[_State]:
    if operator_name(node) not in pattern.ops or any(node.attrs.get(key) != value for key, value in pattern.attrs):
        return
    named = state.named if pattern.name is None else {**state.named, pattern.name: node}
    start = _State(state.tensors, named, state.nodes)
    for order in _orders(pattern, node):
        for inner in _match_inputs(graph, order, node, start):
            yield _State(inner.tensors, inner.named, (*inner.nodes, node))


def operator_name(node: gs.Node) -> str:
    """The operator as patterns spell it: Conv in the default domain, com.microsoft::Gelu in any other."""
    return f"{node.domain}::{node.op}" if node.domain else str(node.op)


def _orders(pattern: Op, node: gs.Node) -> Iterator[dict[int, Pattern]]:
    """Which pattern is tried at which input port."""
    if pattern.any_port:
        for port in range(len(node.inputs)):
            yield {port: pattern.inputs[0]}
    elif operator_name(node) in _COMMUTATIVE and len(pattern.inputs) == 2:
        for order in itertools.permutations(range(2)):
            yield dict(zip(order, pattern.inputs, strict=True))
    elif len(pattern.inputs) <= len(node.inputs):
        yield dict(enumerate(pattern.inputs))


def _match_inputs(graph: Lookup, wanted: dict[int, Pattern], node: gs.Node, state: _State) -> Iterator[_State]:
    if not wanted:
        yield state
        return
    port, *rest = sorted(wanted)
    remaining = {key: wanted[key] for key in rest}
    for inner in _match_tensor(graph, wanted[port], node, node.inputs[port], state):
        yield from _match_inputs(graph, remaining, node, inner)


def _match_tensor(
    graph: Lookup, pattern: Pattern, reader: gs.Node, tensor: gs.Tensor, state: _State
) -> Iterator[_State]:
    if not tensor.name:
        return
    if isinstance(pattern, Op):
        producer = graph.producer(tensor)
        if producer is None or producer.outputs[0] is not tensor:
            return
        if operator_name(producer) in pattern.ops and graph.scope_of(producer) is graph.scope_of(reader):
            yield from _match_node(graph, pattern, producer, state)
        return
    if isinstance(pattern, Const) and not _is_value(graph, tensor, pattern):
        return
    name = pattern.name  # type: ignore[attr-defined]
    if name is None:
        yield state
    elif state.tensors.get(name, tensor) is tensor:
        yield _State({**state.tensors, name: tensor}, state.named, state.nodes)


def _is_value(graph: Lookup, tensor: gs.Tensor, pattern: Const) -> bool:
    if not graph.is_constant(tensor):
        return False
    if pattern.value is None:
        return True
    if isinstance(tensor, gs.Constant) and math.prod(tensor.shape) > _LARGEST_VALUE:
        return False
    values = graph.values(tensor)
    if values.size == 0 or values.size > _LARGEST_VALUE or values.dtype.kind not in "biufV":
        return False
    return bool(np.allclose(values.astype(np.float64), pattern.value, rtol=pattern.tolerance, atol=0.0))


def _is_closed(graph: Lookup, nodes: tuple[gs.Node, ...]) -> bool:
    inside = {id(node) for node in nodes}
    for node in nodes[:-1]:
        for tensor in node.outputs:
            if graph.is_output(tensor) or any(id(reader) not in inside for reader in tensor.outputs):
                return False
    return True
