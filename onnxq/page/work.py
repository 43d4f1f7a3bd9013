"""The work of a model's nodes in multiplications, as far as shapes are known."""

from __future__ import annotations

from collections.abc import Mapping

from onnxq.errors import UnsupportedError
from onnxq.graph import Graph
from onnxq.mixed_precision.costs import MULTIPLYING, macs_of, sized_tensor
from onnxq.runtime.feeds import Feed


def macs_json(graph: Graph, feed: Feed | None, seen: Mapping[str, tuple[int, ...]]) -> dict[str, int] | None:
    """Node -> MACs in one sample; None where a shape is not known: neither `seen` in a run nor stated by the model."""
    symbols: dict[str, int] = {}
    for name, array in (feed or {}).items():
        for dim, length in zip(graph.shape(name) or (), array.shape, strict=False):
            if isinstance(dim, str):
                symbols[dim] = length
    found = {}
    for node in graph.gs.nodes:
        if node.op not in MULTIPLYING or node.domain:
            continue
        shapes = {}
        for name in (sized_tensor(node), str(node.inputs[0].name)):
            stated = seen.get(name) or graph.shape(name)
            sizes = tuple(symbols.get(dim) if isinstance(dim, str) else dim for dim in stated or (None,))
            if None in sizes:
                return None
            shapes[name] = tuple(int(size) for size in sizes if size is not None)
        try:
            found[str(node.name)] = macs_of(graph, node, shapes)
        except UnsupportedError:
            return None
    return found
