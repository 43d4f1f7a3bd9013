"""Sessions that let go of each observed tensor as soon as it was looked at, for models that would not fit otherwise.

onnxruntime decides the order of nodes after it has rewritten the graph, and puts what nobody waits for (reductions, and
the copies of blocked tensors that they read) behind everything else, so all observed tensors stay alive until the end.
Here it rewrites the graph into a file first. The nodes of that file are put into a better order, and it is run as it
is: the same kernels, therefore the same bits.
"""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import onnx

from onnxq.runtime.session import Optimize, make_session

if TYPE_CHECKING:
    import onnxruntime as ort

_DATA = "optimized.data"


def frugal_session(
    model: bytes | Path, readers: Collection[str], *, threads: int | None, optimize: Optimize, provider: str | None
) -> ort.InferenceSession:
    """A session for a model whose nodes `readers` (by name) run as early as possible."""
    with tempfile.TemporaryDirectory(prefix="onnxq-") as folder:
        path = Path(folder) / "optimized.onnx"
        config = {
            "session.optimized_model_external_initializers_file_name": _DATA,
            "session.optimized_model_external_initializers_min_size_in_bytes": "1024",
        }
        make_session(model, threads=threads, optimize=optimize, provider=provider, config=config, optimized_path=path)
        optimized = onnx.load(str(path), load_external_data=False)
        put_early(optimized.graph, readers)
        path.write_bytes(optimized.SerializeToString())
        return make_session(path, threads=threads, optimize="none", provider=provider)


def put_early(graph: onnx.GraphProto, readers: Collection[str]) -> None:
    """Order the nodes so that `readers`, and the copies that they read, stand directly behind what is copied."""
    nodes = list(graph.node)
    makers = {name: i for i, node in enumerate(nodes) for name in node.output if name}
    waiting: list[set[int]] = [{makers[name] for name in _reads(node) if name in makers} for node in nodes]
    followers: list[list[int]] = [[] for _ in nodes]
    for i, before in enumerate(waiting):
        for j in before:
            followers[j].append(i)
    early = [node.name in readers for node in nodes]
    for i, node in enumerate(nodes):
        # The copy out of a blocked layout that a reader waits for.
        early[i] |= node.op_type == "ReorderOutput" and any(early[j] for j in followers[i])
    ready = [(not early[i], i) for i, before in enumerate(waiting) if not before]
    heapq.heapify(ready)
    ordered = []
    while ready:
        _, i = heapq.heappop(ready)
        ordered.append(nodes[i])
        for j in followers[i]:
            waiting[j].discard(i)
            if not waiting[j]:
                heapq.heappush(ready, (not early[j], j))
    assert len(ordered) == len(nodes), "onnxruntime wrote a graph with a cycle"
    del graph.node[:]
    graph.node.extend(ordered)


def _reads(node: onnx.NodeProto) -> set[str]:
    """Inputs of a node, and what its bodies read from around them."""
    found = set(node.input)
    for attribute in node.attribute:
        for body in [attribute.g, *attribute.graphs] if attribute.type in (5, 10) else ():
            inside = {name for inner in body.node for name in _reads(inner)} | {value.name for value in body.output}
            found |= inside - {name for inner in body.node for name in inner.output}
    found.discard("")
    return found
