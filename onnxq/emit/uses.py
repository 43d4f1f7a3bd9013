"""The readers that a quantizer is for, where a plan quantizes a tensor for some of them only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from onnxq.errors import SpecError
from onnxq.graph import Graph, Use, bodies
from onnxq.types import Edge, Placement, QuantPlan


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


def readers_of(graph: Graph, plan: QuantPlan) -> dict[str, list[Use]]:
    """The readers of every tensor that is quantized for all of them.

    For writers that insert nodes between a tensor and its readers: that changes what stands at the ports of these
    readers, not which ports of theirs read other tensors. Asked for one tensor after the other, while the graph
    changes, a Concat of n of them is looked at n times.
    """
    with graph.unchanging():
        return {placement.tensor: graph.consumers(placement.tensor) for placement in plan if placement.edges is None}


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


# ---- reading back ----------------------------------------------------------------------------------------------------


def readings(graph: Graph, written: Graph, placement: Placement) -> Iterator[tuple[str, Any]]:
    """(who reads the quantized tensor, the tensor that stands there in the file or None), for every reader."""
    edges = placement.edges
    if edges is None:
        edges = tuple(Edge(use.node.name, use.port) for use in graph.consumers(placement.tensor))
    for edge in edges:
        inputs = written.node(edge.node).inputs if written.has_node(edge.node) else ()
        yield f"'{edge.node}'", inputs[edge.port] if edge.port < len(inputs) else None
    if placement.edges is not None or not graph.is_output(placement.tensor) or placement.tensor in graph.input_names:
        return  # an input that leaves the model again does so as it came
    if placement.tensor in graph.output_names:
        yield "the caller", written.tensor(placement.tensor) if written.has_tensor(placement.tensor) else None
    for owner in graph.nodes():
        for number, body in enumerate(bodies(owner)):
            for place, output in enumerate(body.outputs):
                if output.name == placement.tensor:
                    held = bodies(written.node(owner.name)) if written.has_node(owner.name) else []
                    yield f"'{owner.name}'", held[number].outputs[place] if number < len(held) else None


def origin(graph: Graph, tensor: str | Any) -> tuple[str, int]:
    """Node and number of the output that make a tensor, else its own name: outputs of the model change theirs."""
    tensor = graph.tensor(tensor) if isinstance(tensor, str) else tensor
    node = graph.producer(tensor)
    if node is None:
        return tensor.name, -1
    return node.name, next(number for number, made in enumerate(node.outputs) if made is tensor)
