"""Calls of functions as torch.fx numbers them: those outside of torch's own layers, whose inside fx does not see."""

from __future__ import annotations

from onnxq.compat.structure import Structure
from onnxq.compat.torch_lookup import FLOAT_FUNCTIONAL_SPACE, torch_name
from onnxq.compat.torch_nodes import nodes_of_type
from onnxq.compat.torch_table import FLOAT_FUNCTIONAL, FUNCTIONAL, OPERATOR, TENSOR
from onnxq.graph import Graph

ADD_RELU = f"{FLOAT_FUNCTIONAL_SPACE}.add_relu"
_FUNCTION_SPACES = ("operator", "torch", "torch.Tensor", "torch.nn.functional")


class FunctionCalls:
    """The calls of functions in one graph, each name looked for once."""

    def __init__(self, structure: Structure) -> None:
        self._structure = structure
        self._found: dict[str, list[list[str]]] = {}

    def of(self, base: str) -> list[list[str]]:
        """The nodes of every call of a function that fx calls `base` ('add', 'truediv'), in order; [] if unknown."""
        if base not in self._found:
            self._found[base] = self._find(base)
        return self._found[base]

    def _find(self, base: str) -> list[list[str]]:
        thing = _function(base)
        calls: dict[str, list[str]] = {}
        for name in [] if thing is None else nodes_of_type(self._structure, thing, base):
            node = self._structure.graph.node(name)
            if self._structure.called_as(node) == "module":
                continue
            unit, maker = self._structure.unit_of(node), self._structure.graph.producer(node.inputs[0])
            if maker is not None and thing == ADD_RELU and maker.name in calls:
                calls[maker.name].append(name)
            else:
                calls.setdefault(unit.last if unit is not None else name, []).append(name)
        return list(calls.values())


def _function(base: str) -> str | None:
    """The full name of the function that fx, or a user of FloatFunctional, calls `base`."""
    if base in OPERATOR:
        return f"operator.{base}"
    if base in FUNCTIONAL or base in TENSOR:
        thing = torch_name(base)
        return thing if thing.rpartition(".")[0] in _FUNCTION_SPACES else f"torch.nn.functional.{base}"
    return f"{FLOAT_FUNCTIONAL_SPACE}.{base}" if base in FLOAT_FUNCTIONAL else None


def function_names(graph: Graph) -> list[str]:
    """Names of functions whose operators a graph holds; without numbers, and more than there are calls of."""
    held = {node.op for node in graph.nodes()}
    every = FUNCTIONAL | TENSOR | OPERATOR | FLOAT_FUNCTIONAL
    return [name for name, text in every.items() if held.intersection(text.split(" > ")[0].split("|"))]
