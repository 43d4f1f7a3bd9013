"""What simulations share: which nodes run on the chip, and new nodes between a node and its result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from onnxq.graph import Graph, Node
from onnxq.graph.attributes import AttributeValues
from onnxq.types import QuantPlan
from onnxq.types.note import Note


def on_chip(graph: Graph, plan: QuantPlan, *ops: str) -> Iterator[Node]:
    """The nodes of these operators that run quantized, alone or inside another one."""
    for node in graph.nodes():
        name = str(node.name)
        if node.op in ops and node.domain in (None, "", "ai.onnx") and (name in plan.quantized or name in plan.fused):
            yield node


class Rewrite:
    """Operators behind a node, the last of which makes the tensor that the node made before, under its old name."""

    def __init__(self, graph: Graph, node: Node) -> None:
        self.graph = graph
        self._scope = graph.scope_of(node)
        self._made = node.outputs[0]
        self._kind = graph.dtype(self._made) or np.dtype(np.float32)
        self.last: Any = graph.add_variable(f"{self._made.name}_inner", self._kind, self._made.shape)
        node.outputs[0] = self.last

    def constant(self, value: float, kind: Any = None) -> Any:
        values = np.asarray(value, self._kind if kind is None else kind)
        return self.graph.add_constant(f"{self._made.name}_number", values, scope=self._scope)

    def then(self, op: str, *others: Any, kind: Any = None, attrs: AttributeValues | None = None) -> Any:
        """One more operator, whose first input is what the one before made."""
        made = self.graph.add_variable(f"{self._made.name}_{op}", kind or self.graph.dtype(self.last), self._made.shape)
        self._add(op, others, made, attrs)
        self.last = made
        return made

    def finish(self, op: str, *others: Any, attrs: AttributeValues | None = None) -> None:
        """The operator that makes the old tensor."""
        self._add(op, others, self._made, attrs)

    def _add(self, op: str, others: tuple[Any, ...], made: Any, attrs: AttributeValues | None) -> None:
        label = f"{self._made.name}_{op}"
        self.graph.add_node(op, [self.last, *others], [made], attrs=attrs, name=label, scope=self._scope)


def becomes_identity(node: Node) -> None:
    """Let a node pass its input on: it keeps its name and its reader, which plans may speak of."""
    node.op = "Identity"
    node.attrs.clear()


def line(node: Node, text: str) -> str:
    """One line of the notes."""
    return Note("simulated", f"node '{node.name}' ({node.op}): {text}")
