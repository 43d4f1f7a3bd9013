"""Whether a graph can be written: every tensor that is read exists where it is read, and has one maker."""

from __future__ import annotations

import onnx_graphsurgeon as gs

from onnxq.errors import ModelError
from onnxq.graph.nodes import bodies


def check_complete(main: gs.Graph) -> None:
    """Raise a ModelError that names the first tensor nobody makes, or that two nodes make."""
    pending: list[tuple[gs.Graph, frozenset[int]]] = [(main, frozenset())]
    while pending:
        scope, outer = pending.pop()
        here = {id(tensor) for tensor in scope.inputs}
        for node in scope.nodes:
            here.update(id(tensor) for tensor in node.outputs)
            for tensor in node.outputs:
                if tensor.name and len(tensor.inputs) > 1:
                    first, second = tensor.inputs[0].name, tensor.inputs[1].name
                    raise ModelError(f"tensor '{tensor.name}' is made by two nodes, '{first}' and '{second}'")
        for node in scope.nodes:
            for tensor in node.inputs:
                if id(tensor) not in here and id(tensor) not in outer:
                    _check_stored(tensor, f"node '{node.name}' ({node.op})")
        for tensor in scope.outputs:
            if id(tensor) not in here and id(tensor) not in outer:
                _check_stored(tensor, f"the outputs of graph '{scope.name}'")
        inner = [body for node in scope.nodes for body in bodies(node)]
        if inner:
            visible = outer | here
            pending.extend((body, visible) for body in inner)


def _check_stored(tensor: gs.Tensor, reader: str) -> None:
    """A tensor without a maker must be a constant, or stand for an omitted input."""
    if tensor.name and not isinstance(tensor, gs.Constant):
        raise ModelError(
            f"tensor '{tensor.name}' is read by {reader}, but nothing makes it there; "
            "redirect its readers, or add the node that makes it"
        )
