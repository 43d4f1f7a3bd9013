"""What operators do with the channels of a residual stream: pass them on, read them with weights, make them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from onnxq.graph import Graph, Node
from onnxq.ptq.equalization.flow import Stop, has_input
from onnxq.ptq.equalization.residual_stream import (
    MAKERS,
    NORMS,
    NUMBERS,
    READERS,
    SKIP_NORMS,
    Kind,
    MakerRule,
    ReaderRule,
    Walk,
)


def reads(*ops: str) -> Callable[[ReaderRule], ReaderRule]:
    def register(rule: ReaderRule) -> ReaderRule:
        READERS.update(dict.fromkeys(ops, rule))
        return rule

    return register


def makes(*ops: str) -> Callable[[MakerRule], MakerRule]:
    def register(rule: MakerRule) -> MakerRule:
        MAKERS.update(dict.fromkeys(ops, rule))
        return rule

    return register


def _single_channels(node: Node) -> Stop:
    return Stop(f"'{node.name}' ({node.op}) computes with single channels")


@reads("Shape")
def _shape(walk: Walk, node: Node, port: int, kind: Kind) -> None:
    """Its result says nothing of values."""


@reads("Add", "Sub")
def _sum(walk: Walk, node: Node, port: int, kind: Kind) -> None:
    other = node.inputs[1 - port]
    if kind.what != "channels":
        raise _single_channels(node)
    if walk.are_numbers(other.name):  # the same number for all channels
        if kind.gain is not None:
            raise _single_channels(node)
        walk.stream.centered = True
    elif walk.graph.is_constant(other):
        walk.turn(node, 1 - port, kind.axis, gain=kind.gain, divides=kind.gain is not None)
    elif kind.gain is not None:
        raise Stop(
            f"'{node.name}' ({node.op}) adds what a norm has scaled: only where norms come first can it be mixed"
        )
    else:
        walk.meet(other.name, kind)
    walk.meet(node.outputs[0].name, kind, made=True)


@makes("Add", "Sub")
def _made_by_sum(walk: Walk, node: Node, kind: Kind) -> None:
    constants = [walk.graph.is_constant(tensor) for tensor in node.inputs]
    for port, tensor in enumerate(node.inputs):
        if constants[port] and walk.are_numbers(tensor.name):
            walk.stream.centered = True
        elif constants[port]:
            walk.turn(node, port, kind.axis)
        else:
            walk.meet(tensor.name, kind)


@reads("Mul")
def _product(walk: Walk, node: Node, port: int, kind: Kind) -> None:
    other, out = node.inputs[1 - port], node.outputs[0].name
    if kind.what == "channels" and other is node.inputs[port]:
        walk.meet(out, replace(kind, what="squares"), made=True)
    elif walk.are_numbers(other.name):
        walk.meet(out, kind, made=True)
    elif kind == Kind() and walk.graph.is_constant(other):
        walk.meet(out, Kind(gain=walk.gain_of(node, 1 - port)), made=True)
    else:
        raise _single_channels(node)


@reads("Div")
def _quotient(walk: Walk, node: Node, port: int, kind: Kind) -> None:
    if port != 0 or not walk.are_numbers(node.inputs[1].name):
        raise _single_channels(node)
    walk.meet(node.outputs[0].name, kind, made=True)


@reads("Pow")
def _square(walk: Walk, node: Node, port: int, kind: Kind) -> None:
    exponent = walk.graph.values(node.inputs[1]) if walk.graph.is_constant(node.inputs[1]) else np.zeros(1)
    if port != 0 or kind.what != "channels" or exponent.size != 1 or float(exponent.reshape(())) != 2.0:
        raise _single_channels(node)
    walk.meet(node.outputs[0].name, replace(kind, what="squares"), made=True)


@reads("ReduceMean", "ReduceSum")
def _mean(walk: Walk, node: Node, port: int, kind: Kind) -> None:
    """Over the channels, or over tokens, which leaves the channels."""
    axes = _axes(walk.graph, node)
    rank = _rank(walk.graph, node.inputs[0].name)
    if port != 0 or axes is None or rank is None:
        raise _single_channels(node)
    from_end = {axis - rank if axis >= 0 else axis for axis in axes}
    if kind.axis in from_end:
        if kind.gain is not None or from_end != {kind.axis}:
            raise _single_channels(node)
        walk.stream.centered |= kind.what == "channels"
        walk.meet(node.outputs[0].name, NUMBERS)
        return
    behind = 0 if node.attrs.get("keepdims", 1) else sum(axis > kind.axis for axis in from_end)
    if kind.what != "channels":
        raise _single_channels(node)
    walk.meet(node.outputs[0].name, replace(kind, axis=kind.axis + behind), made=True)


@reads(*NORMS)
def _norm(walk: Walk, node: Node, port: int, kind: Kind) -> None:
    rank = _rank(walk.graph, node.inputs[0].name)
    axis = int(node.attrs.get("axis", -1))
    if port != 0 or kind != Kind() or (axis != -1 and (rank is None or axis - rank != -1)):
        raise _single_channels(node)
    gain = walk.gain_of(node, 1)
    if has_input(node, 2):
        walk.turn(node, 2, -1, gain=gain, divides=True)
    walk.stream.centered |= node.op == "LayerNormalization"
    for output in node.outputs[1:]:
        walk.meet(output.name, NUMBERS)
    walk.meet(node.outputs[0].name, Kind(gain=gain), made=True)


@reads(*SKIP_NORMS)
def _skip_norm(walk: Walk, node: Node, port: int, kind: Kind) -> None:
    """(x, skip, gamma, beta, bias), or without beta; the fourth result is the sum."""
    if port > 1 or kind != Kind():
        raise _single_channels(node)
    walk.meet(node.inputs[1 - port].name, Kind())
    gain = walk.gain_of(node, 2)
    whole = node.op == "SkipLayerNormalization"
    if whole and has_input(node, 3):
        walk.turn(node, 3, -1, gain=gain, divides=True)
    if has_input(node, 3 + whole):
        walk.turn(node, 3 + whole, -1)
    walk.stream.centered |= whole
    for output in node.outputs[1:3]:
        walk.meet(output.name, NUMBERS)
    walk.meet(node.outputs[0].name, Kind(gain=gain), made=True)
    if len(node.outputs) > 3 and node.outputs[3].name:
        walk.meet(node.outputs[3].name, Kind(), made=True)


@makes(*SKIP_NORMS)
def _skip_sum(walk: Walk, node: Node, kind: Kind) -> None:
    for tensor in node.inputs[:2]:
        walk.meet(tensor.name, kind)


@reads("MatMul")
def _matmul(walk: Walk, node: Node, port: int, kind: Kind) -> None:
    if kind.what != "channels" or kind.axis != (-1 if port == 0 else -2):
        raise _single_channels(node)
    shape = walk.graph.shape(node.inputs[1 - port])
    walk.turn(node, 1 - port, -1 if port == 1 or (shape is not None and len(shape) == 1) else -2, gain=kind.gain)


@makes("MatMul")
def _made_by_matmul(walk: Walk, node: Node, kind: Kind) -> None:
    ports = [port for port in (0, 1) if walk.graph.is_constant(node.inputs[port])]
    if ports == [1] and kind.axis == -1:
        walk.turn(node, 1, -1)
    elif ports == [0] and kind.axis == -2:
        walk.turn(node, 0, -2)
    else:
        raise Stop(f"'{node.name}' (MatMul) makes channels without a constant weight")


@reads("Gemm")
def _gemm(walk: Walk, node: Node, port: int, kind: Kind) -> None:
    if port != 0 or kind.what != "channels" or kind.axis != -1 or node.attrs.get("transA", 0):
        raise _single_channels(node)
    walk.turn(node, 1, 1 if node.attrs.get("transB", 0) else 0, gain=kind.gain)


@makes("Gemm")
def _made_by_gemm(walk: Walk, node: Node, kind: Kind) -> None:
    if kind.axis != -1:
        raise _single_channels(node)
    walk.turn(node, 1, 0 if node.attrs.get("transB", 0) else 1)
    if has_input(node, 2):
        walk.turn(node, 2, -1)


@reads("Conv")
def _conv(walk: Walk, node: Node, port: int, kind: Kind) -> None:
    rank = walk.graph.values(node.inputs[1]).ndim if walk.graph.is_constant(node.inputs[1]) else 0
    if port != 0 or kind.what != "channels" or kind.axis != 1 - rank or node.attrs.get("group", 1) != 1:
        raise _single_channels(node)
    walk.turn(node, 1, 1, gain=kind.gain)


@makes("Conv")
def _made_by_conv(walk: Walk, node: Node, kind: Kind) -> None:
    rank = walk.graph.values(node.inputs[1]).ndim if walk.graph.is_constant(node.inputs[1]) else 0
    if kind.axis != 1 - rank or node.attrs.get("group", 1) != 1:
        raise _single_channels(node)
    walk.turn(node, 1, 0)
    if has_input(node, 2):
        walk.turn(node, 2, 0)


@makes("Gather")
def _made_by_gather(walk: Walk, node: Node, kind: Kind) -> None:
    """Rows of a table, or tokens of the stream."""
    if walk.graph.is_constant(node.inputs[0]):
        if walk.graph.values(node.inputs[0]).ndim != 2 or int(node.attrs.get("axis", 0)) != 0 or kind.axis != -1:
            raise _single_channels(node)
        walk.turn(node, 0, 1)
    else:
        _same_from_end(walk, node, kind, int(node.attrs.get("axis", 0)))
        walk.meet(node.inputs[0].name, kind)


@reads("Gather")
def _gather(walk: Walk, node: Node, port: int, kind: Kind) -> None:
    if port != 0 or kind.what != "channels":
        raise _single_channels(node)
    _same_from_end(walk, node, kind, int(node.attrs.get("axis", 0)))
    walk.meet(node.outputs[0].name, kind, made=True)


def _same_from_end(walk: Walk, node: Node, kind: Kind, axis: int) -> None:
    """An axis in front of the channels changes; these keep their place from the end."""
    rank = _rank(walk.graph, node.inputs[0].name)
    if rank is None or (axis - rank if axis >= 0 else axis) >= kind.axis:
        raise _single_channels(node)


@reads("Identity", "Dropout", "Cast")
def _same(walk: Walk, node: Node, port: int, kind: Kind) -> None:
    if port == 0:
        walk.meet(node.outputs[0].name, kind, made=True)


@makes("Identity", "Dropout", "Cast")
def _made_same(walk: Walk, node: Node, kind: Kind) -> None:
    walk.meet(node.inputs[0].name, kind)


@reads("Slice")
def _slice(walk: Walk, node: Node, port: int, kind: Kind) -> None:
    axes = walk.graph.values(node.inputs[3]) if has_input(node, 3) and walk.graph.is_constant(node.inputs[3]) else None
    if port != 0 or axes is None:
        raise _single_channels(node)
    for axis in axes.tolist():
        _same_from_end(walk, node, kind, int(axis))
    walk.meet(node.outputs[0].name, kind, made=True)


@reads("Concat")
def _concat(walk: Walk, node: Node, port: int, kind: Kind) -> None:
    _made_by_concat(walk, node, kind)
    walk.meet(node.outputs[0].name, kind, made=True)


@makes("Concat")
def _made_by_concat(walk: Walk, node: Node, kind: Kind) -> None:
    """Tokens beside tokens."""
    known = (_rank(walk.graph, tensor.name) for tensor in (*node.outputs, *node.inputs))
    rank, axis = next((one for one in known if one is not None), None), int(node.attrs["axis"])
    if rank is None or (axis - rank if axis >= 0 else axis) == kind.axis or kind.gain or kind.what != "channels":
        raise _single_channels(node)
    for port, tensor in enumerate(node.inputs):
        if walk.graph.is_constant(tensor):
            walk.turn(node, port, kind.axis)
        else:
            walk.meet(tensor.name, kind)


@makes("Expand")
def _made_by_expand(walk: Walk, node: Node, kind: Kind) -> None:
    if walk.graph.is_constant(node.inputs[0]):
        walk.turn(node, 0, kind.axis)
    else:
        walk.meet(node.inputs[0].name, kind)


@reads("Transpose")
def _transpose(walk: Walk, node: Node, port: int, kind: Kind) -> None:
    perm = _perm(node)
    axis = perm.index(kind.axis % len(perm)) - len(perm)
    walk.meet(node.outputs[0].name, replace(kind, axis=axis), made=True)


@makes("Transpose")
def _made_by_transpose(walk: Walk, node: Node, kind: Kind) -> None:
    perm = _perm(node)
    walk.meet(node.inputs[0].name, replace(kind, axis=perm[kind.axis] - len(perm)))


def _perm(node: Node) -> list[int]:
    perm = node.attrs.get("perm")
    if perm is None:
        raise _single_channels(node)
    return [int(axis) for axis in perm]


@reads("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def _reshape(walk: Walk, node: Node, port: int, kind: Kind) -> None:
    if port != 0:
        raise _single_channels(node)
    axis = _axis_behind(walk, node, node.inputs[0].name, node.outputs[0].name, kind)
    walk.meet(node.outputs[0].name, replace(kind, axis=axis), made=True)


@makes("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def _made_by_reshape(walk: Walk, node: Node, kind: Kind) -> None:
    axis = _axis_behind(walk, node, node.outputs[0].name, node.inputs[0].name, kind)
    walk.meet(node.inputs[0].name, replace(kind, axis=axis))


def _axis_behind(walk: Walk, node: Node, one: str, other: str, kind: Kind) -> int:
    """Where the channels are in a tensor of other shape: an axis of their length with as many values behind it."""
    shapes = walk.graph.shape(one), walk.graph.shape(other)
    if None not in shapes:
        before, after = (list(shape or ()) for shape in shapes)
        behind = before[len(before) + kind.axis + 1 :]
        for axis in range(-1, -len(after) - 1, -1):
            left = after[len(after) + axis + 1 :]
            if after[axis] == before[kind.axis] and _count(left) == _count(behind) is not None:
                return axis
    raise Stop(f"'{node.name}' ({node.op}) reshapes channels so that they cannot be followed")


def _count(lengths: list[int | str | None]) -> int | None:
    known = [length for length in lengths if isinstance(length, int)]
    return int(np.prod(known)) if len(known) == len(lengths) else None


def _axes(graph: Graph, node: Node) -> list[int] | None:
    axes = node.attrs.get("axes")
    if axes is None and has_input(node, 1) and graph.is_constant(node.inputs[1]):
        axes = graph.values(node.inputs[1]).tolist()
    return None if axes is None else [int(axis) for axis in axes]


SAME_RANK = (*NORMS, *SKIP_NORMS, "Add", "Sub", "Mul", "Div", "Pow", "MatMul", "Cast", "Identity", "Relu", "Sigmoid")
"""Operators whose result has the rank of their first input, for models whose operators nobody infers shapes for."""


def _rank(graph: Graph, name: str) -> int | None:
    while (shape := graph.shape(name)) is None:
        maker = graph.producer(name)
        if maker is None or maker.op not in SAME_RANK:
            return None
        name = maker.inputs[0].name
    return len(shape)
