"""Models with Upsample, written in the last opset that has it: 9. Nodes that say something else there are rewritten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from onnxq.graph import Graph, Node

UPSAMPLE_OPSET = 9

Lowering = Callable[[Graph, Node], "Callable[[], None] | str"]
"""The change that a node needs, or why there is none."""


def lower_to_upsample_opset(graph: Graph) -> str | None:
    """Write all nodes in opset 9, or leave the graph as it is and return why one of them cannot be."""
    changes: list[Callable[[], None]] = []
    for node in graph.nodes():
        if node.domain:
            return f"'{node.name}' is of domain {node.domain}"
        if _same_version(node.op, graph.opset):
            continue
        change = _LOWERED[node.op](graph, node) if node.op in _LOWERED else "its definition is another one there"
        if isinstance(change, str):
            return f"{node.op} '{node.name}': {change}"
        changes.append(change)
    for change in changes:
        change()
    for entry in graph.header.opset_import:
        if entry.domain == "":
            entry.version = UPSAMPLE_OPSET
    for scope in graph.scopes():
        scope.opset = UPSAMPLE_OPSET
    return None


def _same_version(op: str, opset: int) -> bool:
    if op == "Upsample":
        return True
    try:
        old = onnx.defs.get_schema(op, UPSAMPLE_OPSET, "").since_version
        return bool(old == onnx.defs.get_schema(op, opset, "").since_version)
    except onnx.defs.SchemaError:
        return False


def _keep(*defaults: tuple[str, Any]) -> Lowering:
    """The node stays if the attributes that came later have the only value that there was before; they are dropped."""

    def check(graph: Graph, node: Node) -> Callable[[], None] | str:
        for name, value in defaults:
            given = node.attrs.get(name, value)
            if given != value and list(np.atleast_1d(given)) != [value] * np.size(given):
                return f"{name} = {given} came with a later opset"

        def change() -> None:
            for name, _ in defaults:
                node.attrs.pop(name, None)

        return change

    return check


def _bounds_to_attributes(graph: Graph, node: Node) -> Callable[[], None] | str:
    """Clip: bounds were attributes."""
    bounds: dict[str, float] = {}
    for port, name in ((1, "min"), (2, "max")):
        if len(node.inputs) > port and node.inputs[port].name:
            if not graph.is_constant(node.inputs[port]):
                return "its bounds are computed at run time"
            bounds[name] = float(graph.values(node.inputs[port]).reshape(()))

    def change() -> None:
        node.attrs.update(bounds)
        node.inputs = [node.inputs[0]]

    return change


def _integers(graph: Graph, node: Node, port: int) -> list[int]:
    """A constant input; onnxruntime takes one number for a list of one."""
    return [int(value) for value in graph.values(node.inputs[port]).reshape(-1)]


def _pads_to_attributes(graph: Graph, node: Node) -> Callable[[], None] | str:
    """Pad: the amounts and the value were attributes."""
    given = [tensor for tensor in node.inputs[1:] if tensor.name]
    if len(node.inputs) > 3 or not given or not all(graph.is_constant(tensor) for tensor in given):
        return "its amounts are computed at run time, or given for some axes only"
    amounts = _integers(graph, node, 1)
    value = float(graph.values(given[1]).reshape(())) if len(given) > 1 else 0.0

    def change() -> None:
        node.attrs.update(pads=amounts, value=value)
        node.inputs = [node.inputs[0]]

    return change


def _slice_to_attributes(graph: Graph, node: Node) -> Callable[[], None] | str:
    """Slice: where it begins and ends were attributes, and it had no steps."""
    if not all(graph.is_constant(tensor) for tensor in node.inputs[1:] if tensor.name):
        return "its bounds are computed at run time"
    starts, ends, axes, steps = (
        _integers(graph, node, port) if len(node.inputs) > port and node.inputs[port].name else None
        for port in (1, 2, 3, 4)
    )
    if steps is not None and set(steps) != {1}:
        return f"steps of {steps} came with a later opset"
    shape = graph.shape(node.inputs[0])
    if axes is not None and shape is None and any(axis < 0 for axis in axes):
        return "its axes count from the end of an unknown rank"

    def change() -> None:
        node.attrs.update(starts=starts, ends=ends)
        if axes is not None:
            node.attrs["axes"] = [axis % len(shape) if shape is not None else axis for axis in axes]
        node.inputs = [node.inputs[0]]

    return change


def _axes_to_attribute(graph: Graph, node: Node) -> Callable[[], None] | str:
    """Squeeze and Unsqueeze: the axes were an attribute, and counted from the front."""
    if len(node.inputs) < 2 or not graph.is_constant(node.inputs[1]):
        return "its axes are not constants"
    shape = graph.shape(node.inputs[0] if node.op == "Squeeze" else node.outputs[0])
    axes = _integers(graph, node, 1)
    if shape is None and any(axis < 0 for axis in axes):
        return "its axes count from the end of an unknown rank"

    def change() -> None:
        node.attrs["axes"] = [axis % len(shape) if shape is not None else axis for axis in axes]
        node.inputs = [node.inputs[0]]

    return change


def _front_axis(default: int) -> Lowering:
    """Concat and Flatten: axes counted from the front."""

    def check(graph: Graph, node: Node) -> Callable[[], None] | str:
        axis, shape = int(node.attrs.get("axis", default)), graph.shape(node.inputs[0])
        if axis < 0 and shape is None:
            return "its axis counts from the end of an unknown rank"

        def change() -> None:
            node.attrs["axis"] = axis if axis >= 0 or shape is None else axis + len(shape)

        return change

    return check


def _last_axis(graph: Graph, node: Node) -> Callable[[], None] | str:
    """Softmax: it took everything from an axis on as one; the same for the last axis."""
    shape = graph.shape(node.inputs[0])
    axis = int(node.attrs.get("axis", -1 if graph.opset >= 13 else 1))
    if not shape or axis % len(shape) != len(shape) - 1:
        return "it is not along the last axis"

    def change() -> None:
        node.attrs["axis"] = len(shape) - 1

    return change


def _with_bias(graph: Graph, node: Node) -> Callable[[], None] | str:
    """Gemm: the bias had to be given."""

    def change() -> None:
        if len(node.inputs) < 3 or not node.inputs[2].name:
            zero = graph.add_constant(f"{node.name}_no_bias", np.zeros((), np.float32), scope=graph.scope_of(node))
            node.inputs = [*node.inputs[:2], zero]

    return change


def _no_training(graph: Graph, node: Node) -> Callable[[], None] | str:
    outputs = [tensor for tensor in node.outputs if tensor.name]
    if len(outputs) > 1 or node.attrs.get("training_mode", 0):
        return "it is in training mode"

    def change() -> None:
        node.attrs.pop("training_mode", None)
        while len(node.outputs) > 1:
            node.outputs.pop()

    return change


_UNCHANGED = (
    *("Conv", "ConvTranspose", "Relu", "LeakyRelu", "PRelu", "Sigmoid", "Tanh", "Add", "Sub", "Mul", "Div", "MatMul"),
    *("GlobalAveragePool", "GlobalMaxPool", "Transpose", "Identity", "Exp", "Sqrt", "Abs", "Neg", "Elu", "Sum", "Max"),
    *("Min", "LRN"),
)
"""Operators whose later versions only take more element types or state defaults that all runtimes had."""

_LOWERED: dict[str, Lowering] = {
    **dict.fromkeys(_UNCHANGED, _keep()),
    "MaxPool": _keep(("ceil_mode", 0), ("dilations", 1)),
    "AveragePool": _keep(("ceil_mode", 0), ("dilations", 1)),
    "Reshape": _keep(("allowzero", 0)),
    "BatchNormalization": _no_training,
    "Clip": _bounds_to_attributes,
    "Pad": _pads_to_attributes,
    "Slice": _slice_to_attributes,
    "Squeeze": _axes_to_attribute,
    "Unsqueeze": _axes_to_attribute,
    "Concat": _front_axis(1),
    "Flatten": _front_axis(1),
    "Softmax": _last_axis,
    "Gemm": _with_bias,
}
