"""The quantizers that nodes ask for: on which tensor, in which format, for which uses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from onnxq.errors import UnsupportedError
from onnxq.graph import Graph, Node
from onnxq.place.formats import wider
from onnxq.place.override_resolver import Picks
from onnxq.place.ties import Ties
from onnxq.types import Backend, BiasOf, Edge, QuantSpec


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
    known_range: bool = False  # the operator that makes it has one range on the target, which `observer` says
    picks: Picks = field(default_factory=dict)
    across: bool = False  # scales along another axis than that of the output channels, which a bias has

    @property
    def observe_only(self) -> bool:
        return "observe_only" in self.picks and bool(self.picks["observe_only"].value)


class Requests(dict[str, Request]):
    """Tensor -> what is asked of its quantizer.

    decisive   uses that read float values because they decide something
    ties       tensors that share a scale
    remarks    what the user should know about overrides that could not be fulfilled
    """

    def __init__(self, graph: Graph, backend: Backend, decisive: Iterable[Edge]) -> None:
        super().__init__()
        self.ties = Ties()
        self.remarks: list[str] = []
        self._graph = graph
        self._backend = backend
        self._decisive = set(decisive)
        self._float_uses: dict[str, set[Edge]] = {}
        for edge in self._decisive:
            self.leave_float(graph.node(edge.node).inputs[edge.port].name, edge)

    def ask(
        self, tensor: Any, spec: QuantSpec, role: str, why: str, edge: Edge | None, picks: Picks | None = None
    ) -> Request:
        """Note down that somebody needs a quantizer on a tensor, for one use of it or (None) for all."""
        name = tensor.name
        request = self.get(name)
        if request is None:
            request = self[name] = Request(spec, role, why, picks=picks or {})
            request.observer, request.known_range = self._observer(tensor, role, request.picks)
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

    def _observer(self, tensor: Any, role: str, picks: Picks) -> tuple[str, bool]:
        """The observer of a tensor, and whether it says a range that is known without data."""
        if "observer" in picks:
            return str(picks["observer"].value), False
        if role == "weight":
            return self._backend.weight_observer, False
        producer = self._graph.producer(tensor)
        if producer is None:
            return self._backend.input_observer or self._backend.activation_observer, False
        known = self._backend.fixed_ranges.get(producer.op) if not producer.domain else None
        if known is None:
            return self._backend.activation_observer, False
        return f"fixed:{known[0]!r},{known[1]!r}", True

    def leave_float(self, tensor: str, edge: Edge) -> None:
        """Let one use of a tensor read it as float, whatever others ask for."""
        self._float_uses.setdefault(tensor, set()).add(edge)

    def edges(self, tensor: str) -> tuple[Edge, ...] | None:
        """The uses that read a tensor quantized; None for all of them."""
        request = self[tensor]
        if not request.everywhere:
            return tuple(request.edges)
        left = self._float_uses.get(tensor, set()) - self.overruled(tensor)
        if not left:
            return None
        uses = [Edge(use.node.name, use.port) for use in self._graph.consumers(tensor)]
        return tuple(edge for edge in uses if edge not in left)

    def overruled(self, tensor: str) -> set[Edge]:
        """Uses that should read float values as the user wants, of a tensor that the model returns in one form."""
        if not self[tensor].everywhere or not self._graph.is_output(tensor):
            return set()
        return self._float_uses.get(tensor, set()) - self._decisive

    def is_read_quantized(self, node: Node, port: int) -> bool:
        """Whether a node reads an input from a quantizer that changes values."""
        name = node.inputs[port].name
        request = self.get(name)
        if request is None or request.observe_only:
            return False
        edge = Edge(node.name, port)
        return edge in request.edges or (request.everywhere and edge not in self._float_uses.get(name, ()))

    def drop_unread(self) -> None:
        """Take back what was asked for results that nobody reads quantized: all who read them read float values."""
        for name in self._float_uses:
            if name in self and self[name].everywhere and self.edges(name) == ():
                del self[name]
