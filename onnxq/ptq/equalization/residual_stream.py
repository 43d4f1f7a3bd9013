"""Where the channels of a residual stream can be mixed by an orthogonal matrix, with constants alone.

What writes into the stream (layers, tables, biases) and what reads it behind a norm are constants with the channels of
the stream along one axis. A norm takes part because it works on lengths: RMSNorm(x R) = RMSNorm(x) R for every
orthogonal R, and LayerNorm, which takes the mean off, for those that leave the vector of ones as it is. Its gain, which
is no mixture, goes into the layers behind it first.

A walk gives every tensor that it meets a `Kind`, and says what becomes of each constant. It stops, with the reason,
where something else reads or makes the channels: an activation function, an output of the model, a norm whose result
is added to the stream (BERT).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from onnxq.graph import Graph, Node
from onnxq.ptq.equalization.flow import Stop

SKIP_NORMS = ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
OF_NUMBERS = ("Add", "Sub", "Mul", "Div", "Sqrt", "Pow", "Reciprocal", "Cast", "Identity", "Max")
"""Operators that compute with numbers of the tokens: what is around the root of a variance."""

NORMS = ("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization")


@dataclass(frozen=True)
class Kind:
    """What a tensor is to a stream: its channels along `axis` (from the end), or numbers of the tokens.

    gain    the constant that its channels are to be multiplied with where layers read it: the norm's, which becomes 1
    what    "channels", "squares" of them, or "numbers" that no mixture of channels changes
    """

    axis: int = -1
    gain: str | None = None
    what: str = "channels"


NUMBERS = Kind(what="numbers")


@dataclass(frozen=True)
class Turned:
    """A constant whose `axis` holds the channels. `gain` is multiplied with a layer that reads, and divides what is
    added behind the norm (`divides`)."""

    constant: str
    axis: int
    gain: str | None = None
    divides: bool = False


@dataclass
class Stream:
    """A stream that can be turned: its width, what becomes of constants, and whether ones have to stay ones."""

    width: int = 0
    turned: dict[Turned, None] = field(default_factory=dict)
    gains: dict[str, None] = field(default_factory=dict)
    centered: bool = False
    kinds: dict[str, Kind] = field(default_factory=dict)
    uses: dict[str, set[tuple[str, int]]] = field(default_factory=dict)


def find_streams(graph: Graph) -> tuple[list[Stream], list[str]]:
    """The streams of a graph, and a line for each that cannot be turned."""
    found: list[Stream] = []
    declined: dict[str, None] = {}
    met: set[str] = set()
    for seed in _seeds(graph):
        if seed in met:
            continue
        walk = Walk(graph)
        try:
            found.append(walk.from_tensor(seed))
        except Stop as stop:
            declined[str(stop)] = None
        met |= walk.stream.kinds.keys()
    return found, list(declined)


def _seeds(graph: Graph) -> list[str]:
    """What norms read: their first input, or what is squared in front of a mean."""
    found = []
    for node in graph.nodes():
        if node.op in (*NORMS, *SKIP_NORMS):
            found.append(node.inputs[0].name)
        square = graph.producer(node.inputs[0]) if node.op == "ReduceMean" else None
        if square is not None and square.op in ("Pow", "Mul") and not graph.is_constant(square.inputs[0]):
            maker = graph.producer(square.inputs[0])
            centered = maker is not None and maker.op == "Sub"
            found.append((maker if centered and maker is not None else square).inputs[0].name)
    return list(dict.fromkeys(found))


class Walk:
    """What rules of operators work with: kinds of tensors, and what becomes of constants."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.stream = graph, Stream()
        self._pending: list[tuple[str, bool]] = []

    def from_tensor(self, seed: str) -> Stream:
        """Follow a stream from one of its tensors. One that cannot be judged yet, such as channels that are divided by
        a root, waits until more is known."""
        self.meet(seed, Kind())
        waiting: list[tuple[tuple[str, bool], Stop]] = []
        known = 0
        while self._pending or waiting:
            if not self._pending:
                if known == len(self.stream.kinds):
                    raise waiting[0][1]
                known = len(self.stream.kinds)
                self._pending, waiting = [item for item, _ in waiting], []
            item = self._pending.pop()
            try:
                self._follow(*item)
            except Stop as stop:
                waiting.append((item, stop))
        self._check_constants()
        return self.stream

    def _follow(self, name: str, made: bool) -> None:
        kind = self.stream.kinds[name]
        if self.graph.is_output(name):
            raise Stop(f"'{name}' is an output of the model, whose channels stay as they are")
        if not made:
            self._check_maker(name, kind)
        for use in self.graph.consumers(name):
            rule = READERS.get(use.node.op)
            if rule is None:
                raise Stop(f"'{use.node.name}' ({use.node.op}) computes with single channels")
            rule(self, use.node, use.port, kind)

    def _check_maker(self, name: str, kind: Kind) -> None:
        node = self.graph.producer(name)
        if node is None:
            raise Stop(f"'{name}' is an input of the model, whose channels stay as they are")
        if node.op in NORMS or (node.op in SKIP_NORMS and name == node.outputs[0].name):
            raise Stop(f"'{node.name}' ({node.op}) makes the stream: only where norms come first can it be mixed")
        rule = MAKERS.get(node.op)
        if rule is None:
            raise Stop(f"'{node.name}' ({node.op}) makes channels that cannot be mixed before it")
        rule(self, node, kind)

    def meet(self, tensor: str, kind: Kind, *, made: bool = False) -> None:
        """A tensor is of a kind; `made`: the rule of the node that makes it says so."""
        known = self.stream.kinds.get(tensor)
        if known is None:
            self.stream.kinds[tensor] = kind
            if kind.what != "numbers":
                self._pending.append((tensor, made))
        elif known.gain != kind.gain:
            raise Stop(f"'{tensor}' is added to what a norm has scaled: only where norms come first can it be mixed")
        elif known != kind:
            raise Stop(f"'{tensor}' has its channels along two axes, or other values beside them")

    def are_numbers(self, name: str, depth: int = 6) -> bool:
        """Whether a tensor holds one number for each token, or for all, which no mixture of channels changes."""
        if name in self.stream.kinds:
            return self.stream.kinds[name].what == "numbers"
        if self.graph.is_constant(name):
            return bool(self.graph.values(name).size == 1)
        maker = self.graph.producer(name)
        if maker is None or maker.op not in OF_NUMBERS or not depth:
            return False
        return all(self.are_numbers(tensor.name, depth - 1) for tensor in maker.inputs)

    def turn(self, node: Node, port: int, axis: int, *, gain: str | None = None, divides: bool = False) -> None:
        """A constant of a node takes part; `axis` counts from either end."""
        constant = node.inputs[port]
        if not self.graph.is_constant(constant):
            maker = self.graph.producer(constant)
            tied = maker is not None and maker.op == "Transpose" and self.graph.is_constant(maker.inputs[0])
            why = "a table of embeddings that is the last layer too" if tied else "no constant"
            raise Stop(f"'{node.name}' ({node.op}) reads '{constant.name}', {why}")
        shape = self.graph.values(constant).shape
        if len(shape) < (axis + 1 if axis >= 0 else -axis) or not self._width_is(shape[axis]):
            raise Stop(f"'{constant.name}' of '{node.name}' has shape {list(shape)}, which has no channels of its own")
        self.stream.turned[Turned(constant.name, axis % len(shape), gain, divides)] = None
        self.used(node, port)

    def used(self, node: Node, port: int) -> None:
        self.stream.uses.setdefault(node.inputs[port].name, set()).add((node.name, port))

    def gain_of(self, node: Node, port: int) -> str:
        """The constant of a norm that layers behind it take over."""
        constant = node.inputs[port]
        if not self.graph.is_constant(constant):
            raise Stop(f"'{node.name}' ({node.op}) has a gain that is computed")
        values = self.graph.values(constant)
        if not self._width_is(values.shape[-1] if values.ndim else 1) or values.size != values.shape[-1]:
            raise Stop(f"'{node.name}' has a gain of shape {list(values.shape)}")
        if not values.all():
            raise Stop(f"'{node.name}' has channels with a gain of 0, which its layers cannot undo")
        self.stream.gains[constant.name] = None
        self.used(node, port)
        return str(constant.name)

    def _width_is(self, size: int) -> bool:
        self.stream.width = self.stream.width or size
        return size == self.stream.width > 1

    def _check_constants(self) -> None:
        """Nobody else reads a constant that changes, and all agree on what becomes of it."""
        changed: dict[str, set[Turned | None]] = {}
        for turned in self.stream.turned:
            changed.setdefault(turned.constant, set()).add(turned)
        for gain in self.stream.gains:
            changed.setdefault(gain, set()).add(None)
        for name, ways in changed.items():
            readers = {(use.node.name, use.port) for use in self.graph.consumers(name)}
            if len(ways) > 1 or readers != self.stream.uses[name] or self.graph.is_output(name):
                raise Stop(f"constant '{name}' is read in several ways, as where embeddings are tied to the last layer")


MakerRule = Callable[[Walk, Node, Kind], None]
ReaderRule = Callable[[Walk, Node, int, Kind], None]
MAKERS: dict[str, MakerRule] = {}
"""Operator -> what has to hold for the node that makes channels of a stream."""

READERS: dict[str, ReaderRule] = {}
"""Operator -> what becomes of channels, or of their squares, that a node reads at a port."""
