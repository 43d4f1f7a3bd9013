"""The edits and sentences that several passes share."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxq.graph import Graph, LazyValues, Node

LARGE_BYTES = 1 << 20
"""New constant values of this size or more are computed when they are read, so that no pass holds weights in memory."""


def node_line(node: Node, text: str) -> str:
    """One line of a report: the node, and what was done to it or why nothing was."""
    return f"node '{node.name}' ({node.op}): {text}"


def bypass(graph: Graph, node: Node) -> str | None:
    """Let the readers of a node's first output read its first input instead; returns the reason when that cannot be.

    The node stays, without readers and inputs: the caller removes all such nodes at once, which keeps passes linear.
    An output of the model keeps its name.
    """
    source, result = node.inputs[0], node.outputs[0]
    if graph.is_output(result):
        producer = graph.producer(source)
        if producer is None or graph.scope_of(producer) is not graph.scope_of(node):
            return f"it connects '{source.name}', which is not computed here, directly to the output '{result.name}'"
        if graph.is_output(source):
            return f"both its input '{source.name}' and its output '{result.name}' are outputs of the graph"
    source_name, result_name = source.name, result.name
    graph.redirect(result, source)
    node.inputs.clear()
    graph.origins.tensor_became(source_name, source.name)
    if result_name != source.name:
        graph.origins.tensor_became(result_name, source.name)
    return None


class Folding:
    """Computed tensors that become initializers under their own names; the nodes that made them leave at the end."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._nodes: list[Node] = []
        self._names: list[tuple[Any, str]] = []

    def become_constant(self, tensor: Any, values: np.ndarray | LazyValues, scope: Any) -> None:
        """Let an initializer of `scope` take the readers and, at the end, the name of a tensor that is no output."""
        constant = self._graph.add_constant(f"{tensor.name}_value", values, scope=scope)
        self._graph.redirect(tensor, constant, uses=self._graph.consumers(tensor))
        self._names.append((constant, tensor.name))

    def discard(self, node: Node, why: str) -> None:
        """Let a node leave whose outputs are constants or have no readers."""
        self._graph.origins.node_removed(node.name, why)
        self._nodes.append(node)

    def finish(self) -> None:
        """Remove the discarded nodes all at once, which keeps passes linear, and hand their tensor names over."""
        self._graph.remove(self._nodes)
        for constant, name in self._names:
            self._graph.rename(constant, name, claim=False)
        self._nodes, self._names = [], []


def held_values(graph: Graph, tensor: Any) -> np.ndarray | LazyValues:
    """What a constant holds, without reading it: an array, or lazy values that may be shared."""
    producer = graph.producer(tensor)
    held = tensor if producer is None else producer.attrs.get("value")
    values: np.ndarray | LazyValues = graph.values(tensor) if held is None else getattr(held, "_values", held)
    return values


def loaded(held: np.ndarray | LazyValues) -> np.ndarray:
    """The values themselves; lazy ones are read afresh."""
    return held.load() if isinstance(held, LazyValues) else held


def scalar(graph: Graph, tensor: Any) -> float | None:
    """The number in a constant of one element, None for everything else."""
    if not tensor.name or not graph.is_constant(tensor):
        return None
    held = held_values(graph, tensor)
    if int(np.prod(held.shape, dtype=np.int64)) != 1 or held.dtype == np.dtype(object):
        return None
    return float(loaded(held).reshape(()).astype(np.float64))
