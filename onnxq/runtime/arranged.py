"""Sessions whose nodes are arranged for looking at tensors: less memory, and less time for every run.

onnxruntime decides the order of nodes after it has rewritten the graph, and puts what nobody waits for (reductions, and
the copies of blocked tensors that they read) behind everything else. So all observed tensors stay alive until the end,
and have left the cache when they are read.

Here it rewrites the graph into a file first, with all pinned tensors as outputs. In that file readers are put directly
behind what they read, where the order of the values does not matter they read the blocked tensor itself, and pinned
tensors that nobody asks for are outputs no more. Then the file is run as it is: the same kernels, therefore the same
bits. Creating such a session takes two to three times as long.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import onnx

from onnxq.runtime.session import OPTIMIZED, Model, Optimize, make_session, optimized_session
from onnxq.temporary import temporary_folder

if TYPE_CHECKING:
    import onnxruntime as ort

_COPY = "ReorderOutput"
_LARGEST_BLOCK = 16
"""Blocked tensors have 8 or 16 channels in a block; other numbers of channels are filled up with zeros."""


def arranged_session(
    model: Model,
    readers: Sequence[onnx.NodeProto],
    unwanted: Collection[str],
    any_order: Collection[str],
    *,
    threads: int | None,
    optimize: Optimize,
    provider: str | None,
    config: Mapping[str, str] | None = None,
) -> tuple[ort.InferenceSession, dict[str, str]]:
    """A session for a model, and outputs that have another name in it.

    readers     nodes to add: they read outputs, run directly behind what they read, and make outputs of their own; the
                order of values does not matter to them
    unwanted    outputs that are there for onnxruntime's optimizer, which must not fuse them away, and nobody asks for
    any_order   outputs for which the order of values within a sample does not matter
    """
    with temporary_folder() as folder:
        _, optimized = optimized_session(
            model, folder, threads=threads, optimize=optimize, provider=provider, config=config
        )
        add_readers(optimized.graph, readers)
        drop_outputs(optimized.graph, unwanted)
        names = {node.name for node in readers}
        renamed = read_blocked(optimized.graph, names, any_order)
        put_early(optimized.graph, names)
        path = folder / OPTIMIZED
        path.write_bytes(optimized.SerializeToString())
        return make_session(path, threads=threads, optimize="none", provider=provider), renamed


def add_readers(graph: onnx.GraphProto, readers: Sequence[onnx.NodeProto]) -> None:
    """Add nodes whose outputs are outputs of the graph."""
    graph.node.extend(readers)
    graph.output.extend(onnx.ValueInfoProto(name=name) for node in readers for name in node.output)


def drop_outputs(graph: onnx.GraphProto, unwanted: Collection[str]) -> None:
    """Take back outputs that were there for onnxruntime's optimizer: their tensors need not be kept any more."""
    outputs = [output for output in graph.output if output.name not in unwanted]
    del graph.output[:]
    graph.output.extend(outputs)


def read_blocked(graph: onnx.GraphProto, readers: Collection[str], any_order: Collection[str]) -> dict[str, str]:
    """Let readers and outputs take blocked tensors instead of their copies; returns the outputs' new names."""
    blocked = {
        node.output[0]: node.input[0]
        for node in graph.node
        if node.op_type == _COPY and any(a.name == "channels" and a.i % _LARGEST_BLOCK == 0 for a in node.attribute)
    }
    for node in graph.node:
        if node.name in readers and node.input[0] in blocked:
            node.input[0] = blocked[node.input[0]]
    renamed = {}
    for output in graph.output:
        if output.name in blocked and output.name in any_order:
            renamed[output.name] = blocked[output.name]
    for name in renamed.values():
        graph.output.append(onnx.ValueInfoProto(name=name))
    left = [output for output in graph.output if output.name not in renamed]
    del graph.output[:]
    graph.output.extend(left)
    # Copies that nobody reads any more.
    used = {name for node in graph.node for name in _reads(node)} | {output.name for output in graph.output}
    nodes = [node for node in graph.node if node.op_type != _COPY or node.output[0] in used]
    del graph.node[:]
    graph.node.extend(nodes)
    return renamed


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
        early[i] |= node.op_type == _COPY and any(early[j] for j in followers[i])
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
        if attribute.type not in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
            continue
        for body in [attribute.g, *attribute.graphs]:
            inside = {name for inner in body.node for name in _reads(inner)} | {value.name for value in body.output}
            found |= inside - {name for inner in body.node for name in inner.output}
    found.discard("")
    return found
