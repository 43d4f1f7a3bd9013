"""The readers that a quantizer is for, where a plan quantizes a tensor for some of them only."""

from __future__ import annotations

import numpy as np

from onnxq.errors import SpecError
from onnxq.graph import Graph, Use
from onnxq.types import Placement


def uses_of(graph: Graph, placement: Placement) -> list[Use] | None:
    """The uses that read the quantized value; None for every use, outputs of the graph included."""
    if placement.edges is None:
        return None
    uses = []
    for edge in placement.edges:
        node = graph.node(edge.node)
        if edge.port >= len(node.inputs) or node.inputs[edge.port].name != placement.tensor:
            raise SpecError(
                f"input {edge.port} of node '{edge.node}' is not tensor '{placement.tensor}' as the plan says"
            )
        uses.append(Use(node, edge.port))
    return uses


def keep_for_others(graph: Graph, placement: Placement, values: np.ndarray) -> None:
    """A constant of its own for readers that the plan leaves float; the name stays with the quantized ones."""
    if placement.edges is None:
        return
    quantized = {(edge.node, edge.port) for edge in placement.edges}
    others = [use for use in graph.consumers(placement.tensor) if (use.node.name, use.port) not in quantized]
    if others:
        original = graph.tensor(placement.tensor)
        copy = graph.add_constant(f"{placement.tensor}_float", values, scope=graph.home_of(original))
        graph.redirect(original, copy, uses=others)
