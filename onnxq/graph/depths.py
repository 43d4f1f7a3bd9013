"""How deep nodes lie in a graph, counted in nodes of their own kind: none of one depth is behind another."""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise

from onnxq.graph import Graph


def depths_of(graph: Graph, nodes: Collection[str]) -> dict[str, int]:
    """For each of these nodes of the main graph (sorted) how many others of them lie on the longest way to it."""
    found: dict[str, int] = {}
    passed: dict[str, int] = {}
    for node in graph.gs.nodes:
        depth = max((passed.get(tensor.name, 0) for tensor in node.inputs), default=0)
        if node.name in nodes:
            found[node.name] = depth
            depth += 1
        for tensor in node.outputs:
            passed[tensor.name] = depth
    return found


def in_stages(depths: Collection[int], most: int) -> list[list[int]]:
    """Depths in consecutive runs: one for each, or `most` of them evenly where there are more depths."""
    known = sorted(set(depths))
    count = min(most, len(known))
    borders = [len(known) * number // count for number in range(count + 1)] if known else []
    return [known[start:stop] for start, stop in pairwise(borders)]
