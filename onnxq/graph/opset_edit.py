"""The edits that rewrites between opsets are made of: attributes become inputs, and nodes get a neighbour."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.graph.nodes import Node, Variable

if TYPE_CHECKING:
    from onnxq.graph.graph import Graph


class Refusal(Exception):
    """Why a node cannot be carried to the next version of its operator; `raise_opset` makes it an UnsupportedError."""


def take_attribute(node: gs.Node, name: str, default: Any = None) -> Any:
    """Remove an attribute and return its value."""
    node.attr_types.pop(name, None)
    return node.attrs.pop(name, default)


def set_attribute(node: gs.Node, name: str, value: Any) -> None:
    node.attr_types.pop(name, None)
    node.attrs[name] = value


def set_input(graph: Graph, node: gs.Node, port: int, tensor: gs.Tensor) -> None:
    """Connect an input; ports before it that do not exist yet are marked as not given."""
    while len(node.inputs) <= port:
        node.inputs.append(Variable(""))
    replaced, node.inputs[port] = node.inputs[port], tensor
    _remove_if_unused(graph, replaced)


def leave_out_input(graph: Graph, node: gs.Node, port: int) -> None:
    """Mark an input as not given."""
    set_input(graph, node, port, Variable(""))


def _remove_if_unused(graph: Graph, tensor: gs.Tensor) -> None:
    """Remove an initializer that lost its last reader, unless the caller of the model may set it."""
    if isinstance(tensor, gs.Constant) and not is_read(graph, tensor):
        home = tensor.scope or graph.gs
        if tensor.name not in home.overridable:
            home.initializers.pop(tensor.name, None)


def set_constant_input(graph: Graph, node: gs.Node, port: int, name: str, values: Any, dtype: Any = np.int64) -> None:
    """Connect a new constant, called after the node and its input."""
    set_input(graph, node, port, graph.add_constant(f"{node.name}_{name}", np.array(values, dtype=dtype)))


def has_input(node: gs.Node, port: int) -> bool:
    return port < len(node.inputs) and bool(node.inputs[port].name)


def element_type(graph: Graph, node: gs.Node, port: int = 0) -> np.dtype[Any]:
    dtype = graph.dtype(node.inputs[port])
    if dtype is None:
        raise Refusal(f"the element type of its input '{node.inputs[port].name}' is unknown; declare it in the model")
    return dtype


def is_read(graph: Graph, tensor: gs.Tensor) -> bool:
    return bool(tensor.name) and (bool(graph.consumers(tensor)) or graph.is_output(tensor))


def constant_values(graph: Graph, node: gs.Node, port: int) -> np.ndarray | None:
    """Values of an input; None when they are known at run time only."""
    tensor = node.inputs[port]
    return graph.values(tensor) if graph.is_constant(tensor) else None


def add_beside(graph: Graph, node: gs.Node, op: str, inputs: list[gs.Tensor], role: str, **attrs: Any) -> gs.Tensor:
    """Add a node with one new output to the graph that holds `node`; returns that output."""
    output = graph.add_variable(f"{node.name}_{role}")
    graph.add_node(op, inputs, [output], attrs=attrs, name=f"{node.name}_{role}", scope=graph.scope_of(node))
    return output


def add_after(graph: Graph, node: gs.Node, op: str, role: str) -> Node:
    """Put a node between `node` and the readers of its first output, which keeps its name."""
    result = node.outputs[0]
    node.outputs[0] = graph.add_variable(f"{node.name}_{role}", result.dtype)
    return graph.add_node(op, [node.outputs[0]], [result], name=f"{node.name}_{role}", scope=graph.scope_of(node))


def compute_on_matrix(graph: Graph, node: gs.Node, axis: int) -> None:
    """Let a node see its input flattened to two axes at `axis`, and bring its output back to the input's shape."""
    source = node.inputs[0]
    node.inputs[0] = add_beside(graph, node, "Flatten", [source], "flatten", axis=axis)
    node.inputs[0].dtype = source.dtype
    set_input(graph, add_after(graph, node, "Reshape", "reshape"), 1, _shape_of(graph, node, source))


def _shape_of(graph: Graph, node: gs.Node, tensor: gs.Tensor) -> gs.Tensor:
    """The shape of a tensor as an input of Reshape: a constant where one dimension at most is unknown."""
    shape = graph.shape(tensor)
    known = None if shape is None else [dim if isinstance(dim, int) else -1 for dim in shape]
    if known is None or known.count(-1) > 1 or 0 in known:
        return add_beside(graph, node, "Shape", [tensor], "shape")
    return graph.add_constant(f"{node.name}_shape", np.array(known, dtype=np.int64))
