"""Initializers that nobody reads leave the graph."""

from __future__ import annotations

from onnxq.graph import Graph
from onnxq.passes.base import PASSES, PassResult


@PASSES.register("remove_unused_initializers")
def remove_unused_initializers(graph: Graph) -> PassResult:
    """Remove initializers without readers, in bodies too; one that is an output of the model stays."""
    return PassResult([f"initializer '{name}': removed, nobody reads it" for name in graph.remove_unused_constants()])
