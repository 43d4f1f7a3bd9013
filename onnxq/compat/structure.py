"""What of a graph is a call of its own: not the arithmetic of shapes, nor of constants, nor the inside of a layer.

Whoever asks many questions about one graph makes one `Structure` of it: the answers are worked out once.
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal

from onnxq.compat.module_paths import Origin, Origins, attention_paths, layer_class, module_paths
from onnxq.compat.script_scopes import path_and_outer
from onnxq.compat.torch_table import LAYERS
from onnxq.graph import Graph, Node, Unit, Units, Variable, bodies
from onnxq.passes import run_passes

_RECOGNIZERS = ("recognize_gelu", "recognize_silu", "recognize_hardswish", "recognize_layernorm")
_ARITHMETIC = frozenset({"Add", "Sub", "Mul", "Div", "Pow", "Sqrt", "ReduceMean", "Reciprocal", "Cast"})
_MATRIX_PRODUCTS = frozenset({"MatMul", "Gemm"})
_LAYER_OPERATORS = frozenset(operator for text in LAYERS.values() for operator in text.split("|"))
_NORMS = frozenset({"InstanceNormalization", "GroupNormalization", "LayerNormalization"})


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
    def _layers(self) -> _Layers:
        return _Layers(self)

    def called_as(self, node: Node) -> Literal["module", "function"] | None:
        """Whether a node is the inside of one of torch's layers or a function that the user's code calls.

        None where the file does not tell. The newer exporter writes the class; the names of the TorchScript exporter
        tell calls at the top and in modules that contain others from those of layers, but not a module of the user's
        own around a single function from a layer.
        """
        return self._layers.called_as(node)

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


class _Layers:
    """Tells nodes that are the inside of one of torch's layers from those that a module of the user's own calls."""

    def __init__(self, structure: Structure) -> None:
        self.structure, self.origins = structure, structure.origins
        self.containers: set[str] = set()  # modules that contain others
        self.calls: dict[Origin, dict[str, str]] = {}  # one call of a module -> its operations and their operators
        self.attentions = attention_paths(structure.graph)
        for node in structure.graph.nodes():
            for origin in self.origins.get(node.name, ()):
                self.containers.update(path_and_outer(origin.path)[:-1])
            if node.name in self.origins and not structure.is_preparation(node) and not structure.adds_bias(node):
                unit = structure.unit_of(node)
                inside = self.calls.setdefault(self.origins[node.name][0], {})
                inside[unit.last if unit is not None else node.name] = node.op

    def called_as(self, node: Node) -> Literal["module", "function"] | None:
        told = layer_class(node)
        if told is not None:
            return "module" if told.startswith("torch.nn.modules.") and ".container." not in told else "function"
        origin = next(iter(self.origins.get(node.name, ())), None)
        if origin is None:
            return None
        return "module" if origin.path and self._is_layer(node, origin) else "function"

    def _is_layer(self, node: Node, origin: Origin) -> bool:
        if any(origin.within(path) for path in self.attentions):
            return True
        if origin.path in self.containers:
            return False
        operators = self.calls.get(origin, {}).values()
        if _NORMS.intersection(operators):
            return True  # a GroupNorm reshapes, multiplies and adds as well
        if self.structure.unit_of(node) is None and node.op not in _LAYER_OPERATORS:
            return False
        return len(operators) <= 1  # a layer is one operation; more are code of the user's own


def living(graph: Graph) -> Graph:
    """A copy without what no output depends on: a reader that passes remove must not hide what follows a layer."""
    twin = graph.copy()
    twin.remove_dead()
    return twin


def structure_of(graph: Graph | Structure) -> Structure:
    """What is known of a graph, if that is not what is given already."""
    return graph if isinstance(graph, Structure) else Structure(graph)
