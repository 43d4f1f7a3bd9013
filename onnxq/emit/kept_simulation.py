"""The simulated model of one state after another: nodes are written once, weights quantized where they have changed.

What improves a model changes constants and parameters, seldom nodes or formats. So the simulated model of the first
state serves the next ones: constants and scales that differ take the places of those that were there. The model is the
one that `simulate` would have made, up to the names of zero points.

Models with bodies, chips that compute operators in their own way and quantizers that need more than QuantizeLinear of
8 bits are simulated anew each time, and so are very large models, of which nothing is kept.

The same holds for the model as it is written for onnxruntime, whose layers have integer kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxq.emit.qdq import saturating, to_qdq, to_qdq_in_parts
from onnxq.emit.quantized_values import quantized_numbers, quantized_values
from onnxq.emit.simulate import simulate, simulate_in_pairs
from onnxq.graph import Constant, Graph, bodies
from onnxq.graph.write import constants_of, weight_bytes
from onnxq.types import Backend, QParams, QParamsTable, QuantPlan

MOST_KEPT = 4
"""Models whose nodes or formats differ: one that is improved and one that it is compared with, each in two forms."""

MOST_BYTES = 2**28
"""Bytes of weights from which on nothing is kept."""


class KeptSimulation:
    """Simulated models for one backend, with quantizers as pairs; what the last ones have in common is kept."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._kept: list[_Kept] = []

    def of(self, graph: Graph, plan: QuantPlan, qparams: QParamsTable, *, lent: bool = False) -> Graph:
        """The simulated model, which the caller may change; `plan` has the active quantizers alone.

        One that is `lent` must not be changed, and is another one after the next call.
        """
        if self._backend.simulations or self._cannot_be_kept(graph):
            return simulate(graph, plan, qparams, self._backend, pairs=True)[0]

        def anew() -> Graph | _Parts:
            model = simulate_in_pairs(graph, plan, qparams, self._backend)
            one_scale = all(qparams[leader].scale.ndim == 0 for leader in model.scales)
            if not model.in_pairs or not one_scale:
                return model.graph
            return _Parts(model.graph, model.constants, model.scales, quantized_values)

        return self._of(graph, plan, qparams, "pairs", anew, lent=lent)

    def in_integers(
        self, graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend, *, lent: bool = False
    ) -> Graph:
        """The model as it is written for a backend whose files run in onnxruntime; to be changed or `lent` as `of`."""

        def whole() -> Graph:
            return to_qdq(graph, plan, qparams, backend, rounded=True)[0]

        def anew() -> Graph | _Parts:
            model = to_qdq_in_parts(graph, plan, qparams, backend)
            if model is None:
                return whole()
            return _Parts(model.graph, model.constants, model.scales, quantized_numbers, model.saturating)

        if self._cannot_be_kept(graph):
            return whole()
        return self._of(graph, plan, qparams, backend.name, anew, lent=lent)

    def _cannot_be_kept(self, graph: Graph) -> bool:
        return weight_bytes(graph.gs) > MOST_BYTES or any(map(bodies, graph.gs.nodes))

    def _of(
        self,
        graph: Graph,
        plan: QuantPlan,
        qparams: QParamsTable,
        kind: str,
        anew: Callable[[], Graph | _Parts],
        *,
        lent: bool,
    ) -> Graph:
        nodes, formats = nodes_of(graph), (kind, formats_of(plan))
        for kept in self._kept:
            if kept.nodes == nodes and kept.formats == formats and kept.take(graph, plan, qparams):
                self._kept.remove(kept)
                self._kept.append(kept)
                return kept.model.graph if lent else kept.model.graph.copy()
        model = anew()
        if isinstance(model, Graph):
            return model
        self._kept = [*self._kept[1 - MOST_KEPT :], _Kept(nodes, formats, graph, qparams, model)]
        return model.graph if lent else model.graph.copy()


def nodes_of(graph: Graph) -> list[tuple[Any, ...]]:
    """What the nodes are and read; equal for graphs whose constants alone differ."""
    found: list[tuple[Any, ...]] = [(tuple(graph.input_names), tuple(graph.output_names), graph.opset)]
    for node in graph.gs.nodes:
        attributes = tuple((key, _comparable(value)) for key, value in node.attrs.items())
        inputs, outputs = (tuple(tensor.name for tensor in ends) for ends in (node.inputs, node.outputs))
        found.append((node.name, node.op, node.domain, inputs, outputs, attributes))
    return found


def _comparable(value: Any) -> Any:
    """An attribute as something that is equal where it is the same; tensors are compared as objects."""
    if isinstance(value, Constant):
        return _Same(value._values)
    if isinstance(value, list):
        return tuple(map(_comparable, value))
    return value if isinstance(value, bool | int | float | str | bytes) else _Same(value)


class _Same:
    """Equal to nothing but another one of the same object, which it keeps alive."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def formats_of(plan: QuantPlan) -> list[tuple[Any, ...]]:
    """What of a plan decides which nodes are written."""
    return [(item.tensor, item.spec, item.role, item.edges, item.tie) for item in plan]


@dataclass(frozen=True)
class _Parts:
    """A model whose constants and parameters can be changed.

    constants   quantized constant -> the constant that stands in the model; `stored` makes what that holds
    scales      leader -> names of scale and zero point
    saturating  `onnxq.emit.qdq.saturating`
    """

    graph: Graph
    constants: Mapping[str, str]
    scales: Mapping[str, list[tuple[str, str | None]]]
    stored: Callable[[Graph, Any, QParams, Any], np.ndarray]
    saturating: Mapping[str, bool] = field(default_factory=dict)


class _Kept:
    """A model, and the constants and parameters that it was made of."""

    def __init__(
        self, nodes: list[tuple[Any, ...]], formats: tuple[Any, ...], graph: Graph, qparams: QParamsTable, model: _Parts
    ) -> None:
        self.nodes, self.formats, self.model = nodes, formats, model
        self._leaders = {leader: qparams[leader] for leader in model.scales}
        self._values = {name: constant._values for name, constant in constants_of(graph.gs, is_main=True).items()}
        self._parameters = {name: (qparams[name], qparams.integer_weights.get(name)) for name in model.constants}
        for made in model.constants.values():  # each model that is run would compute them again
            model.graph.set_values(made, model.graph.values(made))

    def take(self, graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> bool:
        """Make it the model of these constants and parameters; False where it cannot become that."""
        constants = {name: constant._values for name, constant in constants_of(graph.gs, is_main=True).items()}
        same_shapes = all(qparams[leader].scale.shape == held.scale.shape for leader, held in self._leaders.items())
        if constants.keys() != self._values.keys() or not same_shapes:
            return False
        if self.model.saturating and saturating(graph, plan, qparams) != self.model.saturating:
            return False
        changed = {name: values for name, values in constants.items() if values is not self._values[name]}
        if not all(self._can_change(name, values) for name, values in changed.items()):
            return False
        for name, values in changed.items():
            if self.model.graph.has_tensor(name):
                self.model.graph.set_values(name, graph.values(name))
            self._values[name] = values
        for name in self.model.constants:
            parameters = qparams[name], qparams.integer_weights.get(name)
            if name in changed or not _same(parameters, self._parameters[name]):
                values = self.model.stored(graph, graph.tensor(name), *parameters)
                self.model.graph.set_values(self.model.constants[name], values)
                self._parameters[name] = parameters
        for leader, held in self._leaders.items():
            found = qparams[leader]
            if found is not held and found != held:
                self._write_scale(leader, found)
                self._leaders[leader] = found
        return True

    def _can_change(self, name: str, values: Any) -> bool:
        """Whether a constant is one that a layer computes with, as it stands in the model or quantized."""
        model, before = self.model.graph, self._values[name]
        if values.shape != before.shape or values.dtype != before.dtype or np.dtype(values.dtype).kind != "f":
            return False
        return name in self.model.constants or (model.has_tensor(name) and model.is_constant(name))

    def _write_scale(self, leader: str, found: QParams) -> None:
        model = self.model.graph
        for scale, zero_point in self.model.scales[leader]:
            model.set_values(scale, found.scale.astype(model.dtype(scale)))
            if zero_point is not None:
                model.set_values(zero_point, found.zero_point.astype(model.dtype(zero_point)))


def _same(one: tuple[QParams, Any], other: tuple[QParams, Any]) -> bool:
    return one[1] is other[1] and (one[0] is other[0] or one[0] == other[0])
