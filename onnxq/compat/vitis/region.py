"""The part of a graph in which quantization happens: from some layers on, up to others."""

from __future__ import annotations

from collections.abc import Iterable

from onnxq.compat.vitis.layers import computes_floats
from onnxq.graph import Graph


def outside_region(graph: Graph, starts: Iterable[str], ends: Iterable[str]) -> list[str]:
    """The nodes that are not behind any of `starts`, or not in front of any of `ends`; the named ones are inside."""
    inside = {str(node.name) for node in graph.nodes()}
    first, last = list(starts), list(ends)
    if first:
        inside &= _reached(graph, first, forward=True)
    if last:
        inside &= _reached(graph, last, forward=False)
    return [str(node.name) for node in graph.nodes() if node.name not in inside and computes_floats(graph, node)]


def inputs_of(graph: Graph, outside: Iterable[str]) -> list[str]:
    """The inputs of the model that only these nodes read: they stay float with them."""
    names = set(outside)
    readers = {name: graph.consumers(name) for name in graph.input_names}
    return [name for name, uses in readers.items() if uses and all(use.node.name in names for use in uses)]


def _reached(graph: Graph, names: list[str], *, forward: bool) -> set[str]:
    found = set(names)
    pending = list(names)
    while pending:
        node = graph.node(pending.pop())
        if forward:
            near = [use.node for made in node.outputs if made.name for use in graph.consumers(made)]
        else:
            near = [made for tensor in node.inputs if (made := graph.producer(tensor)) is not None]
        for other in near:
            if other.name not in found:
                found.add(str(other.name))
                pending.append(str(other.name))
    return found
