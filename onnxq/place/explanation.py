"""The decisions in a plan put into words, for one node or tensor at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from onnxq.errors import ConfigError
from onnxq.graph import Graph
from onnxq.match import resolve
from onnxq.types import Edge, Placement, QParams, QParamsTable, QuantPlan

Fact = tuple[str, str]
"""A label and a value; labels repeat where there are several values."""


@dataclass(frozen=True)
class Answer:
    """Everything known about one node or tensor."""

    kind: str
    name: str
    facts: tuple[Fact, ...]


class Decisions:
    """A plan with what helps to explain it.

    qparams     the plan's parameters, once it was calibrated
    graph       the graph that the plan was made on; with it, names that passes merged or removed are found too
    file_nodes  node -> operator, as in the user's file before any pass
    file_tensors  the tensors of that file
    """

    def __init__(
        self,
        plan: QuantPlan,
        qparams: QParamsTable | None = None,
        graph: Graph | None = None,
        file_nodes: Mapping[str, str] | None = None,
        file_tensors: Sequence[str] = (),
    ) -> None:
        self.plan = plan
        self.qparams = qparams
        self.graph = graph
        self.file_nodes = file_nodes or {}
        self.file_tensors = file_tensors
        self._together = _by_value(plan.fused)
        self._sharing = _by_value({one.tensor: one.tie for one in plan if one.tie is not None})

    def about(self, pattern: str) -> list[Answer]:
        """An answer for each node and tensor that `pattern` names; nodes first."""
        nodes = self._nodes()
        by_operator = pattern.startswith("op:")
        if by_operator and self.graph is None:
            raise ConfigError(f"'{pattern}': a plan does not hold operators; give the float model with --model")
        names = nodes if by_operator else {**dict.fromkeys(self._tensors(), ""), **nodes}
        try:
            found = resolve([pattern], names, "node or tensor")
        except ConfigError as error:
            if self.graph is not None:
                raise
            raise ConfigError(f"{error} Names of your file that passes merged are found with --model MODEL") from None
        answers = [self.node(name) for name in found if name in nodes]
        if not by_operator:
            tensors = self._tensors()
            answers += [self.tensor(name) for name in found if name in tensors]
        return answers

    # ---- names ---------------------------------------------------------------------------------------------------

    def _nodes(self) -> dict[str, str]:
        """Node name -> operator, as far as it is known; names of the user's file included."""
        names = dict.fromkeys([*self.plan.quantized, *self.plan.fused, *self.plan.left_float], "")
        if self.graph is None:
            return names
        names.update({node.name: node.op for node in self.graph.nodes()})
        return {**names, **self.file_nodes}

    def _tensors(self) -> dict[str, None]:
        names = dict.fromkeys([*self.plan.placements, *self.plan.left_out])
        if self.graph is not None:
            names.update(dict.fromkeys([*self.graph.tensor_names(), *self.graph.origins.tensors, *self.file_tensors]))
        return names

    # ---- nodes ---------------------------------------------------------------------------------------------------

    def node(self, asked: str) -> Answer:
        """What became of the node of this very name."""
        current = asked if self.graph is None else self.graph.origins.current_node(asked)
        facts: list[Fact] = []
        if current != asked:
            facts.append(("became", f"part of '{current}' when passes simplified the model"))
        facts += self._state(current)
        facts += self._node_tensors(current)
        return Answer("node", asked, tuple(facts))

    def _state(self, node: str) -> Iterator[Fact]:
        if node in self.plan.quantized:
            yield "quantized", self.plan.quantized[node]
        elif node in self.plan.fused:
            yield "fused", f"runs inside '{self.plan.fused[node]}'"
        elif node in self.plan.left_float:
            yield "float", self.plan.left_float[node]
            yield from self._joined(node)
        elif self.graph is not None and node in self.graph.origins.removed:
            yield "removed", self.graph.origins.removed[node]
        else:
            yield "removed", "passes found that the model computes the same without it"
        together = self._together.get(node)
        if together:
            yield "together with", ", ".join(f"'{name}'" for name in together)

    def _joined(self, node: str) -> Iterator[Fact]:
        """The ranges of what an unlike join joins."""
        for member in (member for join in self.plan.unlike if join.node == node for member in join.members):
            yield "joins", f"'{member.tensor}': {member.low:.6g} to {member.high:.6g}, {member.steps:.3g} steps"

    def _node_tensors(self, node: str) -> Iterator[Fact]:
        """What a node reads and makes, with the quantizers; without the graph, those placed for it alone."""
        if self.graph is None:
            for placement in self.plan:
                for edge in placement.edges or ():
                    if edge.node == node:
                        yield f"input {edge.port}", self._brief(placement)
            return
        if not self.graph.has_node(node):
            return
        found = self.graph.node(node)
        for port, tensor in enumerate(found.inputs):
            if tensor.name:
                yield f"input {port}", self._brief_of(tensor.name, Edge(node, port))
        for tensor in found.outputs:
            if tensor.name:
                yield "output", self._brief_of(tensor.name, None)

    def _brief_of(self, tensor: str, edge: Edge | None) -> str:
        placement = self.plan.placements.get(tensor)
        if placement is None:
            said = self.plan.left_out.get(tensor)
            return f"'{tensor}': float" + ("" if said is None else f" (left out by {said})")
        if placement.observe_only:
            return self._brief(placement)
        if edge is not None and placement.edges is not None and edge not in placement.edges:
            return f"'{tensor}': read as float here, quantized for other nodes"
        return self._brief(placement)

    def _brief(self, placement: Placement) -> str:
        text = f"'{placement.tensor}': {placement.role}, {placement.spec}"
        held = self._qparams(placement.tensor)
        text = text if held is None else f"{text}; {_numbers(held)}"
        text += "; observed only" if placement.observe_only else ""
        said = "; ".join(f"{field} by {where}" for field, where in placement.set_by)
        return f"{text} ({said})" if said else text

    # ---- tensors -------------------------------------------------------------------------------------------------

    def tensor(self, asked: str) -> Answer:
        """What became of the tensor of this very name."""
        current = asked if self.graph is None else self.graph.origins.current_tensor(asked)
        facts: list[Fact] = []
        if current != asked:
            facts.append(("became", f"'{current}' when passes simplified the model"))
        placement = self.plan.placements.get(current)
        if placement is None and self.graph is not None and not self.graph.has_tensor(current):
            facts.append(("removed", "passes have folded it into others, or found that the model does not need it"))
        elif placement is None:
            said = self.plan.left_out.get(current)
            facts.append(("float", "no quantized node asked for it" if said is None else f"left out by {said}"))
        else:
            facts += self._placement(placement)
        return Answer("tensor", asked, tuple(facts))

    def _placement(self, placement: Placement) -> Iterator[Fact]:
        yield "role", placement.role
        yield "format", str(placement.spec)
        yield "why", placement.why
        if placement.edges is None:
            yield "quantized for", "every reader"
        for edge in placement.edges or ():
            yield "quantized for", f"input {edge.port} of '{edge.node}'"
        if placement.tie is not None:
            yield "tied to", f"'{placement.tie}': one scale for both"
        for other in self._sharing.get(placement.tensor, ()):
            yield "shares its scale with", f"'{other}'"
        if placement.derive is not None:
            yield "scale", f"that of '{placement.derive.input}' times that of '{placement.derive.weight}'"
        if placement.observe_only:
            yield "observed only", "its range is found and reported, its values stay float"
        if placement.fake_quantizer != "fixed":
            yield "fake-quantizer", placement.fake_quantizer
        for key, value in placement.changed_treatment().items():
            if key not in ("observer", "fake_quantizer", "observe_only"):  # told in words of their own
                yield key.replace("_", " "), f"{value:g}" if isinstance(value, float) else str(value)
        yield from self._decided_by(placement)
        if placement.observe:
            yield "range from", ", ".join(f"'{name}'" for name in placement.observe) + f" by {placement.observer}"
        held = self._qparams(placement.tensor)
        if held is not None:
            yield "parameters", _numbers(held)
            source = () if self.qparams is None else self.qparams.origins.get(placement.tensor, ())
            if source:
                yield "parameters from", ", ".join(source)

    def _decided_by(self, placement: Placement) -> Iterator[Fact]:
        """Which line decided what: the configuration's, or the rules of the target."""
        fields: dict[str, list[str]] = {}
        for field, where in placement.set_by:
            fields.setdefault(where, []).append(field)
        for where, names in fields.items():
            yield "decided by", f"{where}: {', '.join(names)}"
        rest = "the rest" if fields else "everything"
        yield "decided by", f"backend {self.plan.backend}: {rest}"

    def _qparams(self, tensor: str) -> QParams | None:
        return None if self.qparams is None else self.qparams.entries.get(tensor)


def _by_value(table: Mapping[str, str]) -> dict[str, list[str]]:
    """Value -> the keys that have it."""
    found: dict[str, list[str]] = {}
    for key, value in table.items():
        found.setdefault(value, []).append(key)
    return found


def _numbers(held: QParams) -> str:
    """Scale and zero point, as a range where there are many."""
    if held.scale.size == 1:
        return f"scale {held.scale.reshape(-1)[0]:.8g}, zero point {held.zero_point.reshape(-1)[0]}"
    low, high = held.scale.min(), held.scale.max()
    zeros = held.zero_point
    zero = f"zero points {zeros.min()} .. {zeros.max()}" if np.any(zeros) else "zero point 0"
    return f"{held.scale.size} scales from {low:.6g} to {high:.6g}, {zero}"
