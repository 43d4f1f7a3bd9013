"""Ranges that tables have beside those of the activations in a plan.

A plan quantizes what a layer reads: behind a Flatten, say. In a table that tensor has a range, and the one in front of
the Flatten needs the same, or the operator that makes it would give floats. And a constant that is added or multiplied
stands in a table like the other operand, while the weight of a layer has a place of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from onnxq.emit.tables import Row, rows
from onnxq.graph import Graph, Node
from onnxq.types import QParamsTable, QuantPlan

ALL_VALUES_PASS = ("Flatten", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "MaxPool", "DepthToSpace", "SpaceToDepth")
"""Operators whose result holds every value of their input, or the largest ones: limiting both sides is the same."""

SOME_VALUES_PASS = ("Identity", "Slice", "Split", "Gather", "Expand", "Tile")
"""Operators whose results hold values of their first input and no others, but maybe not all of them."""

LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
"""Operators with a weight as their second input."""

Entry = TypeVar("Entry")


def operand_rows(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> dict[str, Row]:
    """Tensor -> parameters: activations, what moves into them, and constants that are no layer's weight."""
    computed = pass_back(graph, {row.tensor: row for row in rows(graph, plan, qparams)})
    constants = {
        row.tensor: row
        for row in rows(graph, plan, qparams, role="weight")
        if not any(use.node.op in LAYERS and use.port == 1 for use in graph.consumers(row.tensor))
    }
    return computed | constants


def pass_back(graph: Graph, entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """The entries, and for each tensor that only moves into one of them the same entry, behind the given ones.

    A tensor that somebody else reads, or that leaves the graph, keeps its values: it gets no entry.
    """
    result = dict(entries)
    for node in reversed(graph.nodes()):
        if not _passes(node) or not node.outputs or node.outputs[0].name not in result:
            continue
        source = node.inputs[0]
        kept = graph.is_constant(source) or graph.is_output(source) or len(graph.consumers(source)) > 1
        if not kept and source.name not in result:
            result[source.name] = result[node.outputs[0].name]
    return result


def moves_values(node: Node) -> bool:
    """Whether the results hold values of the first input and no others: what lies on a grid stays on it."""
    return _passes(node) or (not node.domain and node.op in SOME_VALUES_PASS)


def _passes(node: Node) -> bool:
    if node.domain:
        return False
    return node.op in ALL_VALUES_PASS or (
        node.op in ("Resize", "Upsample") and node.attrs.get("mode", "nearest") == "nearest"
    )
