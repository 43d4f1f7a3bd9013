"""input_layers, output_layers, ignore_layers: the part of a graph in which quantization happens, and gaps in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from onnxq.compat.translation import Translator
from onnxq.graph import Graph
from onnxq.targets.amd.dialect.layers import computes_floats
from onnxq.targets.amd.dialect.naming import Names
from onnxq.targets.amd.dialect.reading import texts

LAYER_LISTS = ("ignore_layers", "input_layers", "output_layers")


def leave_layers_out(translator: Translator, graph: Graph, names: Names, given: Mapping[str, tuple[str, Any]]) -> None:
    """Skip what the user's lists of layers leave float; `given` holds where each key stands, and its value."""
    for name in LAYER_LISTS:
        key, value = given.get(name, (name, None))
        if value is None:
            continue
        listed = [node for item in texts(value, key) for node in names.called(item, key)]
        if not listed:
            translator.row(key, value, "not set")
        elif name == "ignore_layers":
            translator.append("skip", listed, key)
            translator.row(key, value, f"skip = {', '.join(listed)}")
        else:
            starts, ends = (listed, []) if name == "input_layers" else ([], listed)
            outside = outside_region(graph, starts, ends)
            translator.append("skip", outside, key)
            for tensor in inputs_of(graph, outside):
                translator.set(("tensor", tensor, "skip"), True, key)
            place = "in front of" if name == "input_layers" else "behind"
            translator.row(key, value, f"skip: {len(outside)} nodes {place} them stay float")


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
