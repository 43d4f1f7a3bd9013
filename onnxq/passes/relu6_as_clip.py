"""Two or more clamps in a row become one Clip, the form in which targets know Relu6."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onnxq.graph import Graph, Node
from onnxq.passes.base import PASSES, PassResult
from onnxq.passes.clamp import Clamp, clamp_of
from onnxq.passes.edits import node_line
from onnxq.passes.units import find_leak


@PASSES.register("relu6_as_clip")
def relu6_as_clip(graph: Graph) -> PassResult:
    """Min(Max(x, 0), 6), Min(Relu(x), 6), Clip(Relu(x), max=6) and the like -> Clip(x, 0, 6).

    The same for any two finite bounds. Not where a bound is a tensor of several numbers or not constant, where the
    value between the two is read elsewhere, nor for integers, which not every runtime clips.
    """
    graph.sort()
    result = PassResult()
    seen: set[int] = set()
    superfluous: list[Node] = []
    for node in graph.nodes():
        clamp = None if id(node) in seen else clamp_of(graph, node)
        chain = [node]
        while clamp is not None and (reader := _next_clamp(graph, chain[-1])) is not None:
            following = clamp_of(graph, reader)
            combined = clamp if following is None else _combine(clamp, following)
            reason = _obstacle(graph, chain[-1], reader, combined)
            if reason is not None:
                if _is_finite(combined):
                    result.declined.append(node_line(reader, reason))
                break
            clamp = combined
            chain.append(reader)
        seen.update(map(id, chain))
        if clamp is None or len(chain) == 1 or not _is_finite(clamp):
            continue
        last = chain[-1]
        for earlier in chain[:-1]:
            graph.origins.node_became(earlier.name, last.name)
        superfluous.extend(chain[:-1])
        _become_clip(graph, last, clamp)
        result.changed.append(node_line(last, f"clamps to [{clamp.low:g}, {clamp.high:g}] for {len(chain)} nodes"))
    graph.remove(superfluous)
    return result


def _next_clamp(graph: Graph, node: Node) -> Any:
    """The first reader of a node's output that clamps it further."""
    made = node.outputs[0]
    for use in graph.consumers(made):
        clamp = clamp_of(graph, use.node)
        if clamp is not None and clamp.source is made:
            return use.node
    return None


def _combine(first: Clamp, second: Clamp) -> Clamp:
    low = min(max(first.low, second.low), second.high)
    high = min(max(first.high, second.low), second.high)
    return Clamp(first.source, low, high, first.dtype if second.dtype is None else second.dtype)


def _is_finite(clamp: Clamp) -> bool:
    return math.isfinite(clamp.low) and math.isfinite(clamp.high)


def _obstacle(graph: Graph, node: Node, reader: Node, combined: Clamp) -> str | None:
    if graph.scope_of(node) is not graph.scope_of(reader):
        return f"'{node.outputs[0].name}' comes from outside the body"
    if combined.dtype is not None and combined.dtype.kind in "iub":
        return f"its bounds are {combined.dtype}"
    if graph.opset < 11 and any(bound != np.float32(bound) for bound in (combined.low, combined.high)):
        return f"Clip of opset {graph.opset} cannot hold its bounds exactly"
    leak = find_leak(graph, [node, reader])
    return None if leak is None else f"could be one Clip with the node before, but {leak}"


def _become_clip(graph: Graph, node: Node, clamp: Clamp) -> None:
    """Turn the last node of a chain into the Clip that does the work of all."""
    node.op, node.attrs, node.attr_types = "Clip", {}, {}
    if graph.opset < 11:
        node.attrs.update(min=clamp.low, max=clamp.high)
        node.inputs = [clamp.source]
        return
    bounds = [
        graph.add_constant(f"{node.name}_{name}", np.array(bound, dtype=clamp.dtype), scope=graph.scope_of(node))
        for name, bound in (("min", clamp.low), ("max", clamp.high))
    ]
    node.inputs = [clamp.source, *bounds]
