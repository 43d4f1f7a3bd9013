"""Calls of functions as torch.fx numbers them: those outside of torch's own layers, whose inside fx does not see."""

from __future__ import annotations

from onnxq.compat.module_paths import Origin, attention_paths, layer_class
from onnxq.compat.script_scopes import path_and_outer
from onnxq.compat.structure import Structure
from onnxq.compat.torch_lookup import torch_name
from onnxq.compat.torch_nodes import nodes_of_type
from onnxq.compat.torch_table import FUNCTIONAL, LAYERS, OPERATOR, TENSOR
from onnxq.graph import Graph, Node

_LAYER_OPERATORS = frozenset(operator for text in LAYERS.values() for operator in text.split("|"))
_NORMS = frozenset({"InstanceNormalization", "GroupNormalization", "LayerNormalization"})
_FUNCTION_SPACES = ("operator", "torch", "torch.Tensor", "torch.nn.functional")


class FunctionCalls:
    """The calls of functions in one graph, each name looked for once."""

    def __init__(self, structure: Structure) -> None:
        self._structure = structure
        self._layers = _Layers(structure)
        self._found: dict[str, list[list[str]]] = {}

    def of(self, base: str) -> list[list[str]]:
        """The nodes of every call of a function that fx calls `base` ('add', 'truediv'), in order; [] if unknown."""
        if base not in self._found:
            self._found[base] = self._find(base)
        return self._found[base]

    def _find(self, base: str) -> list[list[str]]:
        if not any(base in table for table in (FUNCTIONAL, TENSOR, OPERATOR)):
            return []
        thing = f"operator.{base}" if base in OPERATOR else torch_name(base)
        if thing.rpartition(".")[0] not in _FUNCTION_SPACES:
            thing = f"torch.nn.functional.{base}"
        calls: dict[str, list[str]] = {}
        for name in nodes_of_type(self._structure, thing, base):
            node = self._structure.graph.node(name)
            if not self._layers.has(node):
                unit = self._structure.unit_of(node)
                calls.setdefault(unit.last if unit is not None else name, []).append(name)
        return list(calls.values())


def function_names(graph: Graph) -> list[str]:
    """Names of functions whose operators a graph holds; without numbers, and more than there are calls of."""
    held = {node.op for node in graph.nodes()}
    every = FUNCTIONAL | TENSOR | OPERATOR
    return [name for name, text in every.items() if held.intersection(text.split("|"))]


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

    def has(self, node: Node) -> bool:
        told = layer_class(node)
        if told is not None:
            return told.startswith("torch.nn.modules.") and ".container." not in told
        origin = next(iter(self.origins.get(node.name, ())), None)
        if origin is None or not origin.path:
            return False
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
