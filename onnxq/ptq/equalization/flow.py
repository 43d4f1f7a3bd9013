"""Following channel scales through a graph: which variables each tensor has, and which constants can take them up.

A tensor x with scales s is going to hold x / s. A layer y = W x keeps the model's outputs when W becomes
W * s_in / s_out; an operator with f(x / s) = f(x) / s carries the scales on; anything else needs its values as they
are. The operators are rules, in `layers` and `carriers`; what has no rule holds its tensors fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxq.graph import Graph, Node, bodies
from onnxq.ptq.equalization.variables import Layout, Variables


class Stop(Exception):
    """Why a node cannot carry scales or take them up; in words that follow "node 'x' (Op) ..."."""


@dataclass(frozen=True)
class Edit:
    """A constant that takes scales up: it becomes constant * s[up] / s[down], both of which broadcast to its shape.

    `down` holds the variables of what the node makes, `up` those of what it reads.
    """

    constant: str
    node: str
    op: str
    up: Layout
    down: Layout


@dataclass(frozen=True)
class Bound:
    """A Clip whose bounds are numbers other than 0: exact only where values stay between them, before and after.

    `tensor` is what it makes, which tells whether values come close to a bound as well as what it reads does, and lets
    onnxruntime put the Clip into the layer in front of it.
    """

    node: str
    tensor: str
    layout: Layout
    low: float
    high: float


@dataclass(frozen=True)
class Made:
    """The variables that one layer introduced, for its outputs."""

    node: str
    op: str
    tensor: str
    variables: Layout


Rule = Callable[["Flow", Node], Layout | Sequence[Layout]]
"""The layouts of a node's outputs; a rule that raises Stop holds what the node reads and makes."""

RULES: dict[str, Rule] = {}


def rule(*operators: str) -> Callable[[Rule], Rule]:
    """Register a function for operators of the ONNX domain."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(operators, function))
        return function

    return register


class Flow:
    """What following the scales has found so far."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.variables = Variables()
        self._one = self.variables.fixed("nothing is scaled here")
        self.layouts: dict[str, Layout] = {}
        self.edits: list[Edit] = []
        self.bounds: list[Bound] = []
        self.made: list[Made] = []
        graph.sort()
        for name in graph.input_names:
            self.layouts[name] = self.variables.fixed(f"'{name}' is an input of the model")
        for node in graph.gs.nodes:
            if not graph.is_constant(node.outputs[0]):
                self._visit(node)
        for node in graph.nodes():
            if graph.scope_of(node) is not graph.gs:
                self._hold(node.inputs, f"'{node.name}' ({node.op}) reads it inside a body")
        for name in graph.output_names:
            if name in self.layouts:
                self.variables.fix(self.layouts[name], f"'{name}' is an output of the model")

    def _visit(self, node: Node) -> None:
        shown = f"'{node.name}' ({node.op})"
        follow = None if node.domain or bodies(node) else RULES.get(node.op)
        found: list[Layout] = []
        try:
            if follow is None:
                raise Stop("needs its values as they are")
            result = follow(self, node)
            found = [result] if isinstance(result, np.ndarray) else list(result)
            if any(layout.size == 0 for layout in found):
                raise Stop("makes a tensor without values")
        except Stop as stop:
            self._hold(node.inputs, f"{shown} {stop}")
            found = [self.variables.fixed(f"{shown} {stop}")]
        for number, tensor in enumerate(node.outputs):
            if tensor.name:
                own = found[number] if number < len(found) else self.variables.fixed(f"it is a side output of {shown}")
                self.layouts[tensor.name] = own

    def _hold(self, tensors: Sequence[Any], reason: str) -> None:
        for tensor in tensors:
            if tensor.name in self.layouts:
                self.variables.fix(self.layouts[tensor.name], reason)

    # ---- what rules ask ------------------------------------------------------------------------------------------

    def layout(self, tensor: Any) -> Layout:
        """The variables of what a node reads; a constant has none that could be chosen."""
        if tensor.name not in self.layouts:
            self.layouts[tensor.name] = self.variables.fixed(f"'{tensor.name}' is a constant")
        return self.layouts[tensor.name]

    def hold(self, tensor: Any, reason: str) -> None:
        """Keep the scales of a tensor at 1."""
        self._hold([tensor], reason)

    def shape(self, tensor: Any) -> tuple[int | str | None, ...]:
        shape = self.graph.shape(tensor)
        if shape is None:
            raise Stop("works on a tensor of unknown rank")
        return shape

    def own_values(self, node: Node, port: int) -> np.ndarray:
        """The values of a constant that this node alone reads, so that they can be changed; Stop for any other."""
        return own_values(self.graph, node, port)

    def make(self, node: Node, *shape: int) -> Layout:
        """New variables for the first output of a layer, along the axes of `shape` that are longer than 1."""
        made = self.variables.fresh(*shape)
        self.made.append(Made(node.name, node.op, node.outputs[0].name, made.ravel()))
        return made

    def edit(self, node: Node, port: int, *, up: Layout | None = None, down: Layout | None = None) -> None:
        """Note that the constant at `port` takes scales up; None stands for a scale of 1."""
        up = self._one if up is None else up
        down = self._one if down is None else down
        self.edits.append(Edit(node.inputs[port].name, node.name, node.op, up, down))


def has_input(node: Node, port: int) -> bool:
    return port < len(node.inputs) and bool(node.inputs[port].name)


def own_values(graph: Graph, node: Node, port: int) -> np.ndarray:
    """The values of a constant that a node alone reads, so that they can be changed; Stop for any other."""
    tensor = node.inputs[port]
    if not graph.is_constant(tensor):
        raise Stop(f"has no constant as input {port}")
    if len(graph.consumers(tensor)) > 1 or graph.is_output(tensor):
        raise Stop(f"shares its constant '{tensor.name}' with other nodes")
    values = graph.values(tensor)
    if values.dtype != np.float32:
        raise Stop(f"has a constant of {values.dtype}, only float32 is precise enough to be changed")
    return values
