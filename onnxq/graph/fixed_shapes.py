"""The shapes of all tensors for inputs of known shapes: what a run would show, without running anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_graphsurgeon as gs

from onnxq.errors import ModelError
from onnxq.graph.graph import Graph
from onnxq.graph.nodes import Scope


def shapes_for(graph: Graph, given: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    """Tensor of the main graph -> its shape where the inputs have the `given` ones, as far as inference follows them.

    What the file declares of inner tensors and outputs is left aside: it is for all inputs at once.
    """
    fixed = graph.copy()
    for scope in fixed.scopes():
        _forget_shapes(scope)
    for tensor in fixed.gs.inputs:
        if tensor.name in given:
            tensor.shape, tensor.info = list(given[tensor.name]), None
    try:
        fixed.infer_shapes()
    except ModelError:  # a model for which inference fails at these shapes: only a run tells
        return {}
    found = {}
    for node in fixed.gs.nodes:
        for tensor in node.outputs:
            if isinstance(tensor, gs.Variable) and tensor.name and tensor.shape is not None:
                shape = tuple(tensor.shape)
                if all(isinstance(size, int) for size in shape):
                    found[str(tensor.name)] = shape
    return found


def _forget_shapes(scope: Scope) -> None:
    scope.output_declarations.clear()
    for node in scope.nodes:
        for tensor in node.outputs:
            if isinstance(tensor, gs.Variable) and tensor.name and tensor.type == "tensor_type":
                tensor.shape, tensor.info = None, None
