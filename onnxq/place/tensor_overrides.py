"""What the user wants of single tensors: everybody who makes or reads one has a say in its quantizer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from onnxq.graph import Graph, Node
from onnxq.place.override_resolver import OverrideResolver, Picks
from onnxq.place.select import Selection


class TensorOverrides:
    """The overrides of one graph by tensor.

    left_out   tensors that stay float because the user wants it -> where that was said
    """

    def __init__(self, graph: Graph, resolver: OverrideResolver, selection: Selection) -> None:
        self.left_out: dict[str, str] = {}
        self._graph = graph
        self._resolver = resolver
        self._makers: dict[str, list[str]] = {}
        for node in selection.nodes if not resolver.empty else ():
            result = selection.fused_ops.result(node).name
            for made in dict.fromkeys([*(tensor.name for tensor in node.outputs), result]):
                self._makers.setdefault(made, []).append(node.name)

    def stays_float(self, tensor: Any, node: Node | None, part: str) -> bool:
        """Whether the user wants no quantizer on a tensor for its use as this part of a node."""
        name, is_output = str(tensor.name), self._graph.is_output(tensor)
        said = self._resolver.left_out(name, None if node is None else str(node.name), part, is_output=is_output)
        if said is not None:
            self.left_out[name] = said
        return said is not None

    def of_activation(self, members: Sequence[str]) -> Picks:
        """What is wanted of the one quantizer of these tensors."""
        if self._resolver.empty:
            return {}
        says = [say for name in members for say in self._says(name)]
        is_output = any(self._graph.is_output(name) for name in members)
        return self._resolver.of_activation(members, says, is_output=is_output)

    def only_observed(self, tensor: str) -> bool:
        picks = self.of_activation([tensor])
        return "observe_only" in picks and bool(picks["observe_only"].value)

    def _says(self, tensor: str) -> Iterator[tuple[str, str]]:
        """Who has a say in the quantizer of a tensor: (node, part) of its readers and of its makers.

        A Conv makes the result of the Relu inside it too.
        """
        for maker in self._makers.get(tensor, ()):
            yield maker, "output"
        for use in self._graph.consumers(tensor):
            yield use.node.name, "activation"
