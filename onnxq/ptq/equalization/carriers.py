"""Operators that carry scales on: f(x / s) = f(x) / s for every positive s of a channel."""

from __future__ import annotations

import math

import numpy as np

from onnxq.graph import Graph, Node
from onnxq.ptq.equalization.flow import Bound, Flow, Stop, has_input, rule
from onnxq.ptq.equalization.layouts import reshaped
from onnxq.ptq.equalization.variables import Layout


@rule("Relu", "LeakyRelu", "PRelu", "Identity", "Dropout", "Abs", "Neg")
def _each_value(flow: Flow, node: Node) -> Layout:
    """The slopes of a PRelu are numbers that a product with s does not change."""
    if node.op == "PRelu" and not flow.graph.is_constant(node.inputs[1]):
        raise Stop("has slopes that are computed")
    return flow.layout(node.inputs[0])


@rule("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool", "GlobalLpPool")
def _pool(flow: Flow, node: Node) -> Layout:
    layout = flow.layout(node.inputs[0])
    if layout.ndim and any(length > 1 for length in layout.shape[2:]):
        raise Stop("reads a tensor whose scales change from position to position")
    return layout


@rule("Clip")
def _clip(flow: Flow, node: Node) -> Layout:
    layout = flow.layout(node.inputs[0])
    low, high = clip_bounds(flow.graph, node)
    if low > 0 or high < 0:
        raise Stop("clips to bounds without 0 between them")
    if any(bound and math.isfinite(bound) for bound in (low, high)):
        flow.bounds.append(Bound(node.name, node.outputs[0].name, layout, low, high))
    return layout


def clip_bounds(graph: Graph, node: Node) -> tuple[float, float]:
    """What a Clip clips to; bounds that are no single numbers raise Stop."""
    if graph.opset < 11:
        return float(node.attrs.get("min", -math.inf)), float(node.attrs.get("max", math.inf))
    low = _number(graph, node, 1) if has_input(node, 1) else -math.inf
    high = _number(graph, node, 2) if has_input(node, 2) else math.inf
    largest = float(np.finfo(np.float32).max)  # exporters write it where there is no bound
    return -math.inf if low <= -largest else low, math.inf if high >= largest else high


def _number(graph: Graph, node: Node, port: int) -> float:
    tensor = node.inputs[port]
    if not graph.is_constant(tensor) or graph.values(tensor).size != 1:
        raise Stop(f"has no single number as input {port}")
    return float(graph.values(tensor).reshape(()))


@rule("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def _reshape(flow: Flow, node: Node) -> Layout:
    layout = flow.layout(node.inputs[0])
    moved = reshaped(layout, flow.shape(node.inputs[0]), flow.shape(node.outputs[0])) if layout.ndim else layout
    if moved is None:
        raise Stop("mixes channels with axes of unknown length")
    return moved


@rule("Transpose")
def _transpose(flow: Flow, node: Node) -> Layout:
    layout = flow.layout(node.inputs[0])
    return layout if layout.ndim == 0 else layout.transpose(node.attrs.get("perm"))


@rule("Concat")
def _concat(flow: Flow, node: Node) -> Layout:
    layouts = [flow.layout(tensor) for tensor in node.inputs]
    if all(layout.ndim == 0 for layout in layouts):
        for other in layouts[1:]:
            flow.variables.unite(layouts[0], other)
        return layouts[0]
    rank = max(layout.ndim for layout in layouts)
    axis = int(node.attrs["axis"]) % rank
    parts = [layout.reshape((1,) * rank) if layout.ndim == 0 else layout for layout in layouts]
    if any(part.ndim != rank for part in parts):
        raise Stop("joins tensors of different rank")
    lengths = [flow.shape(tensor)[axis] for tensor in node.inputs]
    if all(part.shape[axis] == 1 for part in parts) and lengths != [1] * len(parts):
        for part in parts[1:]:  # joined along an axis on which nothing changes, such as positions
            flow.variables.unite(parts[0], part)
        return max(parts, key=np.size)
    others = np.broadcast_shapes(*(part.shape[:axis] + (1,) + part.shape[axis + 1 :] for part in parts))
    spread = []
    for part, length in zip(parts, lengths, strict=True):
        if not isinstance(length, int):
            raise Stop("joins channels whose number is unknown")
        spread.append(np.broadcast_to(part, others[:axis] + (length,) + others[axis + 1 :]))
    return np.concatenate(spread, axis)


@rule("Split")
def _split(flow: Flow, node: Node) -> list[Layout]:
    layout = flow.layout(node.inputs[0])
    axis = int(node.attrs.get("axis", 0))
    if layout.ndim == 0 or layout.shape[axis] == 1:
        return [layout] * len(node.outputs)
    lengths = [flow.shape(tensor)[axis] for tensor in node.outputs]
    known = [length for length in lengths if isinstance(length, int)]
    if len(known) != len(lengths) or sum(known) != layout.shape[axis]:
        raise Stop("splits channels into parts of unknown length")
    return np.split(layout, np.cumsum(known)[:-1], axis)


@rule("Slice")
def _slice(flow: Flow, node: Node) -> Layout:
    layout = flow.layout(node.inputs[0])
    if layout.ndim == 0:
        return layout
    if flow.graph.opset < 10:
        starts, ends = list(node.attrs["starts"]), list(node.attrs["ends"])
        axes, steps = list(node.attrs.get("axes", range(len(starts)))), [1] * len(starts)
    else:
        starts, ends = _integers(flow, node, 1, []), _integers(flow, node, 2, [])
        axes = _integers(flow, node, 3, list(range(len(starts))))
        steps = _integers(flow, node, 4, [1] * len(starts))
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if layout.shape[axis] == 1:
            continue
        if step < 1:
            raise Stop("takes channels in reverse")
        layout = layout[(slice(None),) * (axis % layout.ndim) + (slice(start, end, step),)]
    return layout


@rule("Gather")
def _gather(flow: Flow, node: Node) -> Layout:
    layout = flow.layout(node.inputs[0])
    if layout.ndim == 0:
        return layout
    axis = int(node.attrs.get("axis", 0)) % layout.ndim
    indices = flow.graph.shape(node.inputs[1])
    if layout.shape[axis] == 1:
        if indices is None:
            raise Stop("takes values by indices of unknown rank")
        return layout.reshape(layout.shape[:axis] + (1,) * len(indices) + layout.shape[axis + 1 :])
    if not flow.graph.is_constant(node.inputs[1]):
        raise Stop("takes channels by indices that are computed")
    return layout.take(flow.graph.values(node.inputs[1]), axis)


@rule("Pad")
def _pad(flow: Flow, node: Node) -> Layout:
    """Zeros, or values of the tensor, in front and behind; not along channels, which have no scale there."""
    layout = flow.layout(node.inputs[0])
    rank = len(flow.shape(node.inputs[0]))
    before11 = flow.graph.opset < 11
    pads = list(node.attrs["pads"]) if before11 else _integers(flow, node, 1, [])
    value = (
        float(node.attrs.get("value", 0)) if before11 else _number(flow.graph, node, 2) if has_input(node, 2) else 0.0
    )
    axes = _integers(flow, node, 3, list(range(rank)))
    if value and node.attrs.get("mode", "constant") == "constant":
        raise Stop(f"pads with {value:g}")
    for number, axis in enumerate(axes):
        padded = pads[number] or pads[number + len(axes)]
        if layout.ndim and layout.shape[axis] > 1 and padded:
            raise Stop("pads along the channels")
    return layout


@rule("Resize", "Upsample")
def _resize(flow: Flow, node: Node) -> Layout:
    layout = flow.layout(node.inputs[0])
    if node.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        raise Stop("fills positions outside with a number")
    before, after = flow.shape(node.inputs[0]), flow.shape(node.outputs[0])
    for axis, length in enumerate(layout.shape):
        if length > 1 and (before[axis] != after[axis] or not isinstance(before[axis], int)):
            raise Stop("changes the number of channels")
    return layout


@rule("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2")
def _reduce(flow: Flow, node: Node) -> Layout:
    layout = flow.layout(node.inputs[0])
    if layout.ndim == 0:
        return layout
    axes = list(node.attrs["axes"]) if "axes" in node.attrs else _integers(flow, node, 1, [])
    if not axes and node.attrs.get("noop_with_empty_axes", 0):
        return layout
    axes = axes or list(range(layout.ndim))
    over = {axis % layout.ndim for axis in axes}
    if any(layout.shape[axis] > 1 for axis in over):
        raise Stop("reduces over channels")
    if node.attrs.get("keepdims", 1):
        return layout
    return layout.reshape([length for axis, length in enumerate(layout.shape) if axis not in over])


@rule("Shape", "Size")
def _only_the_shape(flow: Flow, node: Node) -> Layout:
    return flow.variables.fixed("it is no activation")


def _integers(flow: Flow, node: Node, port: int, default: list[int]) -> list[int]:
    if not has_input(node, port):
        return default
    if not flow.graph.is_constant(node.inputs[port]):
        raise Stop(f"has an input {port} that is computed")
    return [int(value) for value in flow.graph.values(node.inputs[port]).ravel()]
