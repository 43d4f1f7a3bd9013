"""What of a graph is a call of its own: not the arithmetic of shapes, nor of constants, nor the inside of a layer.

Whoever asks many questions about one graph makes one `Structure` of it: the answers are worked out once.
"""

from __future__ import annotations

from functools import cached_property

from onnxq.compat.module_paths import Origins, module_paths
from onnxq.graph import Graph, Node, Unit, Units, Variable, bodies
from onnxq.passes import run_passes

_RECOGNIZERS = ("recognize_gelu", "recognize_silu", "recognize_hardswish", "recognize_layernorm")
_ARITHMETIC = frozenset({"Add", "Sub", "Mul", "Div", "Pow", "Sqrt", "ReduceMean", "Reciprocal", "Cast"})
_MATRIX_PRODUCTS = frozenset({"MatMul", "Gemm"})


class Structure:
    """Answers about one graph, worked out once; the graph is not changed, and must not change meanwhile."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._constant: set[str] = set()
        self._known: set[str] = set()
        nodes, before = graph.nodes(), -1
        while before < len(self._constant) + len(self._known):  # until nothing is new: nodes may be in any order
            before = len(self._constant) + len(self._known)
            for node in nodes:
                self._note(node)

    @cached_property
    def origins(self) -> Origins:
        """Which modules the nodes were exported from."""
        return module_paths(self.graph)

    @cached_property
    def dead(self) -> frozenset[str]:
        """Nodes that no output depends on; passes remove them before anything else."""
        return frozenset(self.graph.copy().remove_dead())

    @cached_property
    def _typed(self) -> Graph:
        twin = self.graph.copy()
        twin.infer_shapes()
        return twin

    @cached_property
    def _units(self) -> Units:
        twin = self.graph.copy()  # the recognising passes leave their units in it
        run_passes(twin, _RECOGNIZERS)
        return twin.units

    def _note(self, node: Node) -> None:
        read = [tensor for tensor in node.inputs if tensor.name]
        made = [tensor.name for tensor in node.outputs if tensor.name]
        if bodies(node):
            return
        if node.op in ("Shape", "Size"):
            self._known.update(made)
        elif node.op == "Constant" or (read and all(map(self.is_constant, read))):
            self._constant.update(made)
        elif read and all(self.is_constant(tensor) or tensor.name in self._known for tensor in read):
            self._known.update(made)

    def is_constant(self, tensor: Variable) -> bool:
        """Whether a tensor is a constant, or computed from constants alone, such as a transposed weight."""
        return tensor.name in self._constant or self.graph.is_constant(tensor)

    def is_preparation(self, node: Node) -> bool:
        """Whether a node only prepares constants, or computes with shapes."""
        made = [tensor.name for tensor in node.outputs if tensor.name]
        return bool(made) and all(name in self._constant or name in self._known for name in made)

    def makes_floats(self, node: Node) -> bool:
        """Whether the result of a node is float, or of unknown type: an Add may also be one of integers."""
        kind = self._typed.dtype(self._typed.node(node.name).outputs[0])
        return kind is None or kind.kind not in "iub"

    def unit_of(self, node: Node) -> Unit | None:
        """The Gelu, SiLU, HardSwish, LayerNorm or RMSNorm that a node is a part of."""
        return self._units.of(node.name)

    def is_inside(self, node: Node) -> bool:
        """Whether a node is arithmetic inside such a unit, or adds the bias of a linear layer."""
        return (node.op in _ARITHMETIC and self.unit_of(node) is not None) or self.adds_bias(node)

    def adds_bias(self, node: Node) -> bool:
        """Whether a node adds a constant vector to a product with a constant matrix."""
        if node.op != "Add" or len(node.inputs) != 2:
            return False
        for product, bias in (node.inputs, reversed(node.inputs)):
            maker = self.graph.producer(product)
            if maker is not None and maker.op in _MATRIX_PRODUCTS and self.has_constant_matrix(maker):
                shape = self.graph.shape(bias)
                return self.is_constant(bias) and (shape is None or len(shape) <= 1)
        return False

    def has_constant_matrix(self, node: Node) -> bool:
        return len(node.inputs) > 1 and self.is_constant(node.inputs[1])

    def follower(self, node: Node) -> Node | None:
        """The only reader of a node's only result, past the addition of a bias; None where a result goes elsewhere."""
        made = [tensor for tensor in node.outputs if tensor.name]
        if len(made) != 1 or self.graph.is_output(made[0]):
            return None
        uses = self.graph.consumers(made[0])
        readers = {id(use.node): use.node for use in uses if use.node.name not in self.dead}
        if len(readers) != 1:
            return None
        reader: Node = next(iter(readers.values()))
        return self.follower(reader) if node.op in _MATRIX_PRODUCTS and self.adds_bias(reader) else reader


def living(graph: Graph) -> Graph:
    """A copy without what no output depends on: a reader that passes remove must not hide what follows a layer."""
    twin = graph.copy()
    twin.remove_dead()
    return twin


def structure_of(graph: Graph | Structure) -> Structure:
    """What is known of a graph, if that is not what is given already."""
    return graph if isinstance(graph, Structure) else Structure(graph)
