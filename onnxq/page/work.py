"""The work of a model's nodes in multiplications, as far as shapes are known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress

from onnxq.costs import MULTIPLYING, macs_of, products, sized_tensor
from onnxq.errors import OnnxqError, UnsupportedError
from onnxq.graph import Graph
from onnxq.graph.fixed_shapes import shapes_for
from onnxq.graph.write import weight_bytes
from onnxq.json_file import JsonObject
from onnxq.page.model import constant_bytes
from onnxq.ptq.search.stage import LARGE
from onnxq.runtime.feeds import Feed
from onnxq.types import QuantPlan


def macs_json(
    graph: Graph, feed: Feed | None, seen: Mapping[str, tuple[int, ...]], *, assumed: int | None = None
) -> dict[str, int] | None:
    """Node -> MACs in one sample; None where a shape is not known: neither `seen` in a run nor stated by the model.

    Named sizes that the inputs leave open are those of `feed`; else what is `assumed`, where something is.
    """
    symbols: dict[str, int] = {} if assumed is None else dict.fromkeys(open_sizes(graph), assumed)
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


def open_sizes(graph: Graph) -> list[str]:
    """The named sizes that the inputs of a model leave open."""
    sizes = [size for name in graph.input_names for size in graph.shape(name) or ()]
    return list(dict.fromkeys(size for size in sizes if isinstance(size, str)))


def macs_of_run(graph: Graph, feed: Feed) -> dict[str, int] | None:
    """Node -> MACs in one sample; where the shapes of `feed` do not settle all, a small enough model is run on it."""
    found = macs_json(graph, feed, {})
    if found is None and not any(node.op == "Shape" for node in graph.gs.nodes):  # inference follows few computed sizes
        found = macs_json(graph, feed, shapes_for(graph, {name: array.shape for name, array in feed.items()}))
    if found is None and weight_bytes(graph.gs) <= LARGE:
        with suppress(OnnxqError):  # what a run of the float model cannot tell stays unknown
            return {product.node: product.macs for product in products(graph, feed)}
    return found


def work_json(graph: Graph, plan: QuantPlan, macs: Mapping[str, int] | None) -> JsonObject:
    """How much of the work is done in integers: layers by operator, and their MACs where these are known."""
    inside = {*plan.quantized, *plan.fused}
    layers = [node for node in graph.gs.nodes if node.op in MULTIPLYING and not node.domain]
    total, quantized = Counter(node.op for node in layers), Counter(node.op for node in layers if node.name in inside)
    return {
        "layers": {op: {"all": count, "quantized": quantized[op]} for op, count in total.items()},
        "macs": None if macs is None else sum(macs.values()),
        "quantized_macs": None if macs is None else sum(count for name, count in macs.items() if name in inside),
    }


def work_of(graph: Graph, plan: QuantPlan, dataset: Iterable[Feed] | None) -> JsonObject:
    """What the report says of how much of the work is quantized, with the MACs of each layer, and of the constants."""
    feed = None if dataset is None else next(iter(dataset), None)
    macs = macs_json(graph, None, {}) if feed is None else macs_of_run(graph, feed)
    return {
        "work": {**work_json(graph, plan, macs), "layer_macs": macs},
        "constant_bytes": constant_bytes(graph, plan),
    }
