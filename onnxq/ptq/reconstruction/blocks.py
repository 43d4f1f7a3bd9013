"""Cutting the main graph into segments: every node is in exactly one, in topological order.

A segment with quantized weights is a block that can be fitted; the others only run.

layer   a node with a quantized weight and the element-wise nodes behind it (bias, batch norm, activation, the Add of a
        residual), as AdaRound reconstructs a layer with its activation function
N       that many layers, with everything between them
auto    BRECQ's blocks, found by liveness. Between two nodes of the order some tensors are alive: made before, read
        after. Where only one is, everything behind depends on it alone: a boundary. What lies between two of them is a
        residual block, an attention or its MLP, or a single node; neighbours with one layer each are put together two
        by two (a depthwise convolution and its pointwise one). Parts with more than MOST_LAYERS layers, such as the
        backbone of a detector whose features stay alive, are cut again where two tensors are alive, then three ...

Only tensors that carry data are counted as alive: real-valued inputs, what is looked up in a table, results of layers,
and what is computed from them. A mask or a shape that every block reads is none. If, Loop and Scan are segments of
their own: what their bodies hold is quantized, but not fitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from onnxq.graph import Graph, Node, bodies
from onnxq.graph.sort import captured
from onnxq.types import Edge, QuantPlan

MOST_LAYERS = 10
"""Layers of one block at most, if there is a place to cut."""
MOST_ALIVE = 6
TOGETHER = 2
"""Layers in a row, each between two boundaries, that make one block."""

_ARITHMETIC = (
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Sqrt",
    "Pow",
    "Abs",
    "Neg",
    "Min",
    "Max",
    "Erf",
    "Identity",
    "Cast",
    "Dropout",
)
_RECTIFIERS = ("Relu", "LeakyRelu", "PRelu", "ThresholdedRelu", "Clip", "Elu", "Selu", "Celu")
_SMOOTH = ("Sigmoid", "HardSigmoid", "HardSwish", "Swish", "Mish", "Gelu", "Tanh", "Softplus", "Softsign")
_OF_RUNTIME = ("FastGelu", "QuickGelu", "BiasGelu")
_ELEMENT_WISE = frozenset({*_ARITHMETIC, *_RECTIFIERS, *_SMOOTH, *_OF_RUNTIME, "BatchNormalization"})
"""What is computed from each value alone, with settings of its channel."""
_LOOKED_UP = frozenset({"Gather", "GatherElements", "GatherND", "GatherBlockQuantized"})
"""They read each weight by itself, for which the nearest number is the best one."""
_SHAPES = frozenset({"Shape", "Size"})


@dataclass(frozen=True)
class Segment:
    """Consecutive nodes of the main graph.

    reads    tensors from outside, without constants
    makes    tensors that are read behind the segment, or leave the model
    layers   its nodes with quantized weights
    weights  the constants among them that are read nowhere else
    """

    nodes: tuple[str, ...]
    reads: tuple[str, ...]
    makes: tuple[str, ...]
    layers: tuple[str, ...]
    weights: tuple[str, ...]

    def __str__(self) -> str:
        if not self.layers:
            return self.nodes[0]
        return self.layers[0] if len(self.layers) == 1 else f"{self.layers[0]} .. {self.layers[-1]}"


def partition(graph: Graph, plan: QuantPlan, block: str = "auto") -> list[Segment]:
    """The segments of a graph in topological order; `plan` is the one that is carried out (`applied`)."""
    nodes = [node for node in graph.gs.nodes if not (node.op == "Constant" and not node.domain)]
    order = _Order(graph, plan, nodes)
    if block == "auto":
        ranges = _blocks(order)
    else:
        ranges = _layers(order)
        if block != "layer":
            ranges = _grouped(order, ranges, int(block))
    return [order.segment(first, end) for first, end in _control_flow_apart(order, ranges)]


Range = tuple[int, int]
"""The first node, and the one behind the last."""


class _Order:
    """The nodes with what depends on their order: who reads what last, what is alive between them."""

    def __init__(self, graph: Graph, plan: QuantPlan, nodes: Sequence[Node]) -> None:
        self.graph = graph
        self.nodes = nodes
        self.made: dict[str, int] = {}
        self.last_read: dict[str, int] = {}
        self.read: list[list[str]] = []
        given = set(graph.input_names)
        for number, node in enumerate(nodes):
            inside = captured(node) if bodies(node) else []
            names = dict.fromkeys(t.name for t in (*node.inputs, *inside) if t.name in given or t.name in self.made)
            self.read.append(list(names))
            self.last_read.update(dict.fromkeys(names, number))
            self.made.update((t.name, number) for t in node.outputs if t.name)
        self.weights = [_weights(graph, plan, node) for node in nodes]
        self.is_layer = [bool(names) for names in self.weights]
        self.alive = self._alive()

    def _alive(self) -> list[int]:
        """How many tensors that carry data are alive behind each node; what is given from outside (the image, or what
        attention remembers of a layer) is alive from its first reader on."""
        graph = self.graph
        carrying = {name for name in graph.input_names if _is_real(graph, name)}
        change = [0] * (len(self.nodes) + 1)
        first_read: dict[str, int] = {}
        for number, names in enumerate(self.read):
            for name in carrying.intersection(names):
                first_read.setdefault(name, number)
        for name, first in first_read.items():
            change[first] += 1
            change[self.last_read[name]] -= 1
        for number, node in enumerate(self.nodes):
            reads_data = not carrying.isdisjoint(self.read[number]) and node.op not in _SHAPES
            if reads_data or self.is_layer[number] or _looks_up_data(graph, node):
                for tensor in node.outputs:
                    carrying.add(tensor.name)
                    change[number] += 1
                    change[max(number, self.last_read.get(tensor.name, number))] -= 1
        return list(accumulate(change[:-1]))

    def layers(self, span: Range) -> int:
        return sum(self.is_layer[span[0] : span[1]])

    def element_wise(self, span: Range) -> bool:
        return all(node.op in _ELEMENT_WISE for node in self.nodes[span[0] : span[1]])

    def segment(self, first: int, end: int) -> Segment:
        inside = range(first, end)
        reads = dict.fromkeys(name for i in inside for name in self.read[i] if self.made.get(name, -1) < first)
        leaving = set(self.graph.output_names)
        makes = [
            tensor.name
            for i in inside
            for tensor in self.nodes[i].outputs
            if tensor.name and (self.last_read.get(tensor.name, -1) >= end or tensor.name in leaving)
        ]
        names = {self.nodes[i].name for i in inside}
        weights = dict.fromkeys(name for i in inside for name in self.weights[i])
        own = [name for name in weights if all(use.node.name in names for use in self.graph.consumers(name))]
        return Segment(
            nodes=tuple(self.nodes[i].name for i in inside),
            reads=tuple(reads),
            makes=tuple(makes),
            layers=tuple(self.nodes[i].name for i in inside if self.is_layer[i]),
            weights=tuple(name for name in own if name not in leaving),
        )


def _weights(graph: Graph, plan: QuantPlan, node: Node) -> list[str]:
    """The quantized weights that a node computes with."""
    if node.op in _LOOKED_UP or bodies(node):
        return []
    found = []
    for port, tensor in enumerate(node.inputs):
        if tensor.name in plan and plan[tensor.name].role == "weight" and graph.is_constant(tensor):
            edges = plan[tensor.name].edges
            if edges is None or Edge(node.name, port) in edges:
                found.append(tensor.name)
    return found


def _is_real(graph: Graph, tensor: str) -> bool:
    dtype = graph.dtype(tensor)
    return dtype is None or dtype.kind not in "iub"


def _looks_up_data(graph: Graph, node: Node) -> bool:
    """Whether a node takes rows from a table of numbers, such as the embeddings of words."""
    table = node.inputs[0] if node.inputs and node.op in _LOOKED_UP else None
    return table is not None and graph.is_constant(table) and _is_real(graph, table.name) and len(table.shape) > 1


def _layers(order: _Order) -> list[Range]:
    """Each layer with the element-wise nodes that follow it in the order and on its results; the rest by itself."""
    starts: list[int] = []
    fitted = False
    for number, node in enumerate(order.nodes):
        if order.is_layer[number]:
            starts.append(number)
            fitted = True
            continue
        start = starts[-1] if starts else 0
        follows = any(order.made.get(name, -1) >= start for name in order.read[number])
        if not starts or (fitted and not (node.op in _ELEMENT_WISE and follows)):
            starts.append(number)
            fitted = False
    return list(pairwise([*starts, len(order.nodes)]))


def _control_flow_apart(order: _Order, ranges: Sequence[Range]) -> list[Range]:
    """Ranges cut in front of and behind every node that has bodies."""
    found: list[Range] = []
    for first, end in ranges:
        alone = [i for i in range(first, end) if bodies(order.nodes[i])]
        cuts = sorted({first, end, *alone, *(i + 1 for i in alone)})
        found += pairwise(cuts)
    return found


def _grouped(order: _Order, ranges: Sequence[Range], most: int) -> list[Range]:
    """Ranges put together until they have `most` layers; what lies behind the last layer of a group stays outside."""
    found: list[Range] = []
    pending: list[Range] = []
    for span in ranges:
        if not order.layers(span):
            pending.append(span)
            continue
        held = order.layers(found[-1]) if found else 0
        if 0 < held < most:
            found[-1] = (found[-1][0], span[1])
        else:
            found += [*pending, span]
        pending = []
    return [*found, *pending]


def _blocks(order: _Order) -> list[Range]:
    """The parts between boundaries, put together where they are small."""
    found: list[Range] = []
    chain = 0
    """Layers of the last range, if each of them stood between two boundaries; 0 if no other may join it."""
    for span in _between_boundaries(order, (0, len(order.nodes)), 1):
        layers = order.layers(span)
        behind_layers = bool(found) and order.layers(found[-1]) > 0
        joins = behind_layers and (0 < chain < TOGETHER if layers == 1 else not layers and order.element_wise(span))
        if joins or (found and not layers and not behind_layers):
            found[-1] = (found[-1][0], span[1])
            chain += layers if chain else 0
        else:
            found.append(span)
            chain = layers if layers == 1 else 0
    return found


def _between_boundaries(order: _Order, span: Range, alive: int) -> list[Range]:
    """A range cut behind each node with at most `alive` living tensors, and further where that leaves too much."""
    cuts = [i + 1 for i in range(span[0], span[1] - 1) if order.alive[i] <= alive]
    found: list[Range] = []
    for part in pairwise([span[0], *cuts, span[1]]):
        if order.layers(part) <= MOST_LAYERS:
            found.append(part)
        elif alive < MOST_ALIVE:
            found += _between_boundaries(order, part, alive + 1)
        else:
            found += _cut_in_order(order, part)
    return found


def _cut_in_order(order: _Order, span: Range) -> list[Range]:
    """A range cut in front of every layer with a number that is a multiple of MOST_LAYERS."""
    layers = [i for i in range(*span) if order.is_layer[i]]
    starts = [span[0], *layers[MOST_LAYERS::MOST_LAYERS]]
    return list(pairwise([*starts, span[1]]))
