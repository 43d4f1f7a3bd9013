"""Raise the opset of a graph, node by node, and refuse by name what cannot be carried over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.errors import UnsupportedError

if TYPE_CHECKING:
    from onnxq.graph.graph import Graph


def ir_version_for(opset: int) -> int:
    """The lowest IR version that allows an opset."""
    raise UnsupportedError(f"opset {opset}")


def raise_opset(graph: Graph, old: int, new: int) -> list[str]:
    """Rewrite nodes whose definition changed between `old` and `new`."""
    raise UnsupportedError(f"opset {old} -> {new}")
