"""What is asked of quantizers: by whom, in which format, and what the user wants changed in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from onnxq.errors import ConfigError, SpecError, UnsupportedError
from onnxq.graph import Graph, Node
from onnxq.place.formats import Formats, wider
from onnxq.place.override_resolver import OverrideResolver, Picks, formats
from onnxq.place.select import Selection
from onnxq.place.ties import Ties
from onnxq.types import Backend, BiasOf, Edge, QuantSpec
from onnxq.types.overrides import changed


@dataclass
class Request:
    """A quantizer that somebody needs on a tensor."""

    spec: QuantSpec
    role: str
    why: str
    edges: dict[Edge, None] = field(default_factory=dict)
    everywhere: bool = False
    derive: BiasOf | None = None
    observer: str = "minmax"
    picks: Picks = field(default_factory=dict)
    across: bool = False  # scales along another axis than that of the output channels, which a bias has

    @property
    def observe_only(self) -> bool:
        return "observe_only" in self.picks and bool(self.picks["observe_only"].value)


class Asked(Selection):
    """The quantizers that were asked for so far.

    requests   tensor -> what is asked of its quantizer
    ties       tensors that share a scale
    left_out   tensors that stay float because the user wants it -> where that was said
    remarks    what the user should know about wishes that could not be fulfilled
    """

    def __init__(self, graph: Graph, backend: Backend, choices: OverrideResolver) -> None:
        super().__init__(graph, backend, choices)
        self.requests: dict[str, Request] = {}
        self.ties = Ties()
        self.left_out: dict[str, str] = {}
        self.remarks: list[str] = []
        self.formats = Formats(graph, backend)
        self._float_edges: dict[str, set[Edge]] = {}
        self._decides = {
            Edge(name, port)
            for name in self.decisive
            if name in self.exempt
            for port, tensor in enumerate(graph.node(name).inputs)
            if tensor.name
        }
        for edge in self._decides:
            self._float_edges.setdefault(graph.node(edge.node).inputs[edge.port].name, set()).add(edge)
        self._makers: dict[str, list[str]] = {}
        for node in self.nodes if not choices.silent else ():
            for made in dict.fromkeys([*(tensor.name for tensor in node.outputs), self.result(node).name]):
                self._makers.setdefault(made, []).append(node.name)

    def _ask(
        self, tensor: Any, spec: QuantSpec, role: str, why: str, edge: Edge | None, picks: Picks | None = None
    ) -> Request:
        """Note down that somebody needs a quantizer on a tensor."""
        name = tensor.name
        request = self.requests.get(name)
        if request is None:
            request = self.requests[name] = Request(spec, role, why, picks=picks or {})
            request.observer = self._observer(tensor, role, request.picks)
        elif request.spec != spec and role == "weight":
            remedy = "run the pass split_shared_weights first"
            if picks or request.picks:
                remedy = f'it has one quantizer for all: say what you want under [tensor."{name}"]'
            raise UnsupportedError(
                f"constant '{name}' is needed as {request.spec} ({request.why}) and as {spec} ({why}); {remedy}"
            )
        else:
            request.spec = wider(request.spec, spec)
        if edge is None:
            request.everywhere = True
        else:
            request.edges[edge] = None
        return request

    def _observer(self, tensor: Any, role: str, picks: Picks) -> str:
        if "observer" in picks:
            return str(picks["observer"].value)
        if role == "weight":
            return self.backend.weight_observer
        producer = self.graph.producer(tensor)
        if producer is None:
            return self.backend.input_observer or self.backend.activation_observer
        known = self.backend.fixed_ranges.get(producer.op) if not producer.domain else None
        return self.backend.activation_observer if known is None else f"fixed:{known[0]!r},{known[1]!r}"

    def wanted(self, tensor: str, spec: QuantSpec, picks: Picks) -> QuantSpec:
        """The format with what the user wants changed in it."""
        wanted = formats(picks)
        if not wanted:
            return spec
        try:
            return changed(spec, wanted)
        except SpecError as error:
            said = ", ".join(dict.fromkeys(picks[key].source for key in wanted))
            raise ConfigError(f"tensor '{tensor}' ({spec}) cannot be changed as {said} wants: {error}") from None

    def _stays_float(self, tensor: Any, node: Node | None, part: str) -> bool:
        """Whether the user wants no quantizer on a tensor for this use of it."""
        if self.choices.silent:
            return False
        name, is_output = str(tensor.name), self.graph.is_output(tensor)
        said = self.choices.left_out(name, None if node is None else str(node.name), part, is_output=is_output)
        if said is not None:
            self.left_out[name] = said
        return said is not None

    def float_edges(self, tensor: str) -> set[Edge]:
        """The uses of a tensor that read it as float because the user wants it, or because they decide something."""
        return self._float_edges.get(tensor, set())

    def edges_of(self, tensor: str) -> tuple[Edge, ...] | None:
        """The uses that read a tensor quantized; None for all of them."""
        request = self.requests[tensor]
        if not request.everywhere:
            return tuple(request.edges)
        left = self._float_edges.get(tensor)
        if not left:
            return None
        wished = left - self._decides
        if self.graph.is_output(tensor) and wished:
            readers = ", ".join(f"'{edge.node}'" for edge in sorted(wished))
            self.remarks.append(
                f"tensor '{tensor}' is quantized for {readers} all the same: it is an output of the model, which has "
                f"one form ({self.left_out[tensor]})"
            )
            left = left & self._decides
        if not left:
            return None
        uses = [Edge(use.node.name, use.port) for use in self.graph.consumers(tensor)]
        return tuple(edge for edge in uses if edge not in left)

    def activation_picks(self, members: Sequence[str]) -> Picks:
        if self.choices.silent:
            return {}
        says = [say for name in members for say in self._says(name)]
        return self.choices.of_activation(members, says, is_output=any(self.graph.is_output(n) for n in members))

    def _says(self, tensor: str) -> Iterator[tuple[str, str]]:
        """Who has a say in the quantizer of a tensor: (node, part) of its readers and of its makers.

        A Conv makes the result of the Relu inside it too.
        """
        for maker in self._makers.get(tensor, ()):
            yield maker, "output"
        for use in self.graph.consumers(tensor):
            yield use.node.name, "activation"

    def _only_observed(self, tensor: Any) -> bool:
        picks = self.activation_picks([tensor.name])
        return "observe_only" in picks and bool(picks["observe_only"].value)
