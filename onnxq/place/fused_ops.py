"""Which nodes run inside the node in front of them: the Add of a bias, an activation, the rest of a user's chain."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from onnxq.graph import Graph, Node
from onnxq.place.fusions import Fusions


class FusedOps:
    """Nodes with what is fused behind them.

    chains        chains of operators that the user wants computed as one
    activations   operators that the target computes inside the node in front of them
    exempt        nodes that no target may quantize: an Add of a mask is no bias
    apart         nodes that run by themselves all the same
    """

    def __init__(
        self, graph: Graph, chains: Fusions, activations: Collection[str], exempt: Collection[str], apart: set[str]
    ) -> None:
        self.chains = chains
        self._graph = graph
        self._activations = activations
        self._exempt = exempt
        self._apart = apart

    def result(self, node: Node) -> Any:
        """The tensor that leaves a node together with what is fused behind it."""
        made = node.outputs[0]
        adder = self.bias_adder(node)
        if adder is not None:
            made = adder.outputs[0]
        made = self.chains.end(node.name, made)
        activation = self._activation(made)
        return made if activation is None else activation.outputs[0]

    def followers(self, node: Node) -> Iterator[Node]:
        """The nodes that run inside a node, in order."""
        made, end = node.outputs[0], self.result(node)
        while made is not end:
            follower: Node = self._graph.consumers(made)[0].node
            yield follower
            made = follower.outputs[0]

    def bias_adder(self, node: Node) -> Node | None:
        """The Add that belongs to a MatMul as its bias; one that adds a mask does not."""
        unit = self._graph.units.of(node.name)
        if unit is None or unit.kind != "MatMulAdd" or unit.nodes[0] != node.name or unit.last in self._exempt:
            return None
        adder: Node = self._graph.node(unit.last)
        return adder

    def _activation(self, tensor: Any) -> Node | None:
        if self._graph.is_output(tensor):
            return None
        uses = self._graph.consumers(tensor)
        if len(uses) != 1 or uses[0].port != 0 or uses[0].node.op not in self._activations:
            return None
        activation: Node = uses[0].node
        bounds_known = all(self._graph.is_constant(t) for t in activation.inputs[1:] if t.name)
        return activation if bounds_known and activation.name not in self._apart else None
