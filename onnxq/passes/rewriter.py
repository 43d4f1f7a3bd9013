"""Edits that the weight-carrying passes share: one node swallows the next, one reader of a constant gets new values.

Nodes that became superfluous are collected and leave the graph together, so that a pass stays linear in its size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard

import numpy as np

from onnxq.graph import Constant, Graph, Node, Variable
from onnxq.passes.base import PassResult
from onnxq.passes.edits import node_line


class Declined(Exception):
    """A place that fits a pass but must stay as it is; the text is the reason shown to the user."""


def shown(node: Node) -> str:
    return f"node '{node.name}' ({node.op})"


def is_op(node: Node | None, *ops: str) -> TypeGuard[Node]:
    """Whether a node is one of these operators of the default ONNX domain."""
    return node is not None and not node.domain and node.op in ops


def has_input(node: Node, port: int) -> bool:
    """Whether an optional input is given."""
    return port < len(node.inputs) and bool(node.inputs[port].name)


def require_only_reader(graph: Graph, producer: Node, reader: Node) -> None:
    """Decline unless `reader` alone reads the output of `producer`, beside it in the same graph or body."""
    tensor = producer.outputs[0]
    if graph.is_output(tensor):
        raise Declined(f"'{tensor.name}', made by {shown(producer)}, is a graph output")
    other = next((node for node in tensor.outputs if node is not reader), None)
    if other is not None:
        raise Declined(f"'{tensor.name}', made by {shown(producer)}, is also read by node '{other.name}'")
    if graph.scope_of(producer) is not graph.scope_of(reader):
        raise Declined(f"'{tensor.name}', made by {shown(producer)}, comes from outside the body that reads it")


def constant_values(graph: Graph, node: Node, port: int, what: str) -> np.ndarray:
    """The values of an input in float64, or a decline when they are not known."""
    tensor = node.inputs[port]
    if not graph.is_constant(tensor):
        raise Declined(f"{what} '{tensor.name}' of {shown(node)} is not a constant")
    return np.asarray(graph.values(tensor)).astype(np.float64)


def known_shape(graph: Graph, tensor: Any) -> tuple[Any, ...] | None:
    """The shape, also of a Constant node's output that no shape inference has seen."""
    shape = graph.shape(tensor)
    return graph.values(tensor).shape if shape is None and graph.is_constant(tensor) else shape


def element_type(graph: Graph, tensor: Any) -> np.dtype[Any] | None:
    """The dtype, also of a Constant node's output that no shape inference has seen."""
    dtype = graph.dtype(tensor)
    return graph.values(tensor).dtype if dtype is None and graph.is_constant(tensor) else dtype


def cast_back(values: np.ndarray, dtype: Any, what: str) -> np.ndarray:
    """float64 results in the dtype of the model; declines what would become infinite there."""
    with np.errstate(over="ignore", invalid="ignore"):
        result = values.astype(dtype)
    looked_at = result if result.dtype.kind == "f" else result.astype(np.float64)  # bfloat16 is of no kind of numpy's
    if not np.isfinite(looked_at).all():
        raise Declined(f"the new {what} would not be finite in {np.dtype(dtype)}")
    return result


class Rewriter:
    """One run of a pass over one graph: its report, and the nodes that leave at the end."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.result = PassResult()
        self._doomed: list[Node] = []

    def changed(self, node: Node, what: str) -> None:
        self.result.changed.append(node_line(node, what))

    def declined(self, node: Node, why: Declined) -> None:
        self.result.declined.append(node_line(node, str(why)))

    def swallow(self, node: Node, swallowed: Node) -> None:
        """Let `node` make the output of `swallowed`, under the name it has there."""
        inner, kept = node.outputs[0], swallowed.outputs[0]
        node.outputs[0] = kept
        swallowed.outputs[0] = inner
        kept.dtype = inner.dtype if kept.dtype is None else kept.dtype
        kept.shape = inner.shape if kept.shape is None else kept.shape
        self.graph.origins.tensor_became(inner.name, kept.name)
        self.discard(swallowed, node)

    def discard(self, node: Node, successor: Node) -> None:
        """Let a node leave whose output nobody reads any more; `successor` stands for it from now on."""
        read = list(node.inputs)
        node.inputs.clear()
        for tensor in read:
            self._released(tensor)
        self._doomed.append(node)
        self.graph.origins.node_became(node.name, successor.name)

    def set_constant(self, node: Node, port: int, values: np.ndarray, role: str) -> str:
        """Give one input of one node new values; other readers keep theirs. Returns a remark for the report.

        A constant that nobody else reads keeps its name. `role` ("bias") names a constant that did not exist before.
        """
        if not has_input(node, port):
            while len(node.inputs) <= port:
                node.inputs.append(Variable(""))
            node.inputs[port] = self.graph.add_constant(f"{node.name}_{role}", values)
            return ""
        old = node.inputs[port]
        shared = len(old.outputs) > 1 or self.graph.is_output(old)
        if isinstance(old, Constant) and not shared and old.shape == values.shape and old.dtype == values.dtype:
            old.values = values
            return ""
        new = self.graph.add_constant(old.name, values)
        node.inputs[port] = new
        if shared:
            self.graph.origins.tensor_copied(old.name, new.name)
            return f"; '{old.name}' has other readers, so this node reads its own '{new.name}'"
        self.graph.origins.tensor_became(old.name, new.name)
        self._released(old)
        return ""

    def drop_input(self, node: Node, port: int) -> None:
        """Leave out the last, optional input of a node."""
        old = node.inputs.pop(port)
        self._released(old)

    def _released(self, tensor: Any) -> None:
        """A Constant node without readers leaves too; initializers are swept at the end."""
        maker = self.graph.producer(tensor)
        if maker is not None and is_op(maker, "Constant") and not tensor.outputs and not self.graph.is_output(tensor):
            self._doomed.append(maker)

    def visit(self, op: str, rewrite: Callable[[Rewriter, Node], None]) -> PassResult:
        """Try `rewrite` on every node of one operator, report what it declines, and finish."""
        for node in self.graph.nodes(op):
            if node.domain:
                continue
            try:
                rewrite(self, node)
            except Declined as reason:
                self.declined(node, reason)
        return self.finish()

    def finish(self) -> PassResult:
        """Take out what became superfluous, initializers without readers included."""
        if self._doomed:
            self.graph.remove(self._doomed)
        if self.result.changed:
            self.graph.remove_unused_constants()
        return self.result
