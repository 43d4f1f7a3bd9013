"""Where a constant can be taken off the channels of an activation and given to the biases of the layers behind it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxq.graph import Graph, Node
from onnxq.ptq.equalization.carriers import clip_bounds
from onnxq.ptq.equalization.flow import Stop, has_input, own_values
from onnxq.ptq.equalization.layers import BIAS, WEIGHT, grouped_inputs
from onnxq.ptq.equalization.layouts import on_axis, reshaped, vector_along
from onnxq.types import QuantPlan

CARRIES = ("Identity", "Dropout", "MaxPool", "GlobalAveragePool", "GlobalMaxPool")
RESHAPES = ("Flatten", "Reshape", "Squeeze", "Unsqueeze")


@dataclass(frozen=True)
class Reader:
    """A layer with a bias; `channels` says for each of its input channels which channel of the source it is."""

    node: str
    op: str
    weight: str
    bias: str
    channels: np.ndarray
    group: int = 1
    by_rows: bool = False
    factor: float = 1.0

    def response(self, weight: np.ndarray, shift: np.ndarray) -> np.ndarray:
        """What the bias has to make up for when `shift` is taken off the source."""
        vector, weight = shift[self.channels], weight.astype(np.float64)
        if self.op == "Conv":
            met = grouped_inputs("Conv", self.group, vector, weight.shape)
            return np.asarray((weight * met).sum(axis=tuple(range(1, weight.ndim))))
        return np.asarray(self.factor * (weight @ vector if self.by_rows else vector @ weight))


@dataclass(frozen=True)
class Site:
    """A layer with a bias, the Relu behind it, and the layers that read what that makes.

    before   the tensor in front of the Relu, which has its channels along `axis`
    high     the upper bound of a Clip; infinity for a Relu
    """

    node: str
    bias: str
    before: str
    axis: int
    rank: int
    channels: int
    high: float
    readers: tuple[Reader, ...]

    def layout(self) -> np.ndarray:
        """The number of the channel, in an array that broadcasts to the tensor."""
        return on_axis(np.arange(self.channels), self.axis, self.rank)


def find_sites(graph: Graph, plan: QuantPlan) -> tuple[list[Site], list[str]]:
    """Where a bias can be absorbed, and a line for each layer in front of a Relu where it cannot."""
    found, declined = [], []
    for relu in graph.gs.nodes:
        if relu.domain or relu.op not in ("Relu", "Clip"):
            continue
        layer = graph.producer(relu.inputs[0])
        if layer is None or layer.domain or layer.op not in ("Conv", "ConvTranspose", "Gemm", "Add"):
            continue
        if layer.op == "Add" and not any(graph.is_constant(tensor) for tensor in layer.inputs):
            continue  # two branches, and not the bias of a MatMul
        try:
            found.append(_site(graph, plan, layer, relu))
        except Stop as stop:
            declined.append(f"'{layer.name}' ({layer.op}): it {stop}")
    return found, declined


def _site(graph: Graph, plan: QuantPlan, layer: Node, relu: Node) -> Site:
    before = relu.inputs[0]
    shape = graph.shape(before)
    if shape is None:
        raise Stop("makes a tensor of unknown rank")
    if len(graph.consumers(before)) > 1 or graph.is_output(before):
        raise Stop(f"is read by others than '{relu.name}' ({relu.op})")
    low, high = (0.0, math.inf) if relu.op == "Relu" else clip_bounds(graph, relu)
    if low != 0 or high <= 0:
        raise Stop(f"is clipped by '{relu.name}' to bounds that do not begin at 0")
    port = _bias_port(graph, layer)
    bias = own_values(graph, layer, port)
    lengths = [axis for axis, length in enumerate(bias.shape) if length > 1]
    if len(lengths) != 1 or (layer.op != "Add" and lengths != [bias.ndim - 1]):
        raise Stop(f"has a bias of shape {list(bias.shape)}, which is not one value for each channel")
    axis = 1 if layer.op != "Add" else len(shape) - bias.ndim + lengths[0]
    site = Site(layer.name, layer.inputs[port].name, before.name, axis, len(shape), bias.size, high, readers=())
    tensors: list[str] = [before.name]
    readers = _readers(graph, relu.outputs[0], site.layout(), tensors)
    if not any(name in plan for name in tensors):
        raise Stop("makes a tensor that stays float")
    return Site(**{**vars(site), "readers": tuple(readers)})


def _bias_port(graph: Graph, layer: Node) -> int:
    if layer.op == "Add":
        return 0 if graph.is_constant(layer.inputs[0]) else 1
    if not has_input(layer, BIAS):
        raise Stop("has no bias")
    if float(layer.attrs.get("beta", 1.0)) != 1.0:
        raise Stop(f"multiplies its bias with {layer.attrs['beta']:g}")
    return BIAS


def _readers(graph: Graph, tensor: Any, layout: np.ndarray, tensors: list[str]) -> list[Reader]:
    """All layers that read a tensor, behind operators that carry a shift; `tensors` collects those on the way."""
    tensors.append(tensor.name)
    if graph.is_output(tensor):
        raise Stop(f"makes '{tensor.name}', an output of the model")
    found: list[Reader] = []
    for node, port in graph.consumers(tensor):
        shown = f"'{node.name}' ({node.op})"
        if graph.scope_of(node) is not graph.gs or port != 0 or node.domain:
            raise Stop(f"is read by {shown}, which cannot take a shift up")
        if node.op in ("Conv", "Gemm", "MatMul"):
            found.append(_reader(graph, node, layout))
            continue
        found.extend(_readers(graph, node.outputs[0], _carried(graph, node, layout), tensors))
    return found


def _carried(graph: Graph, node: Node, layout: np.ndarray) -> np.ndarray:
    """The layout behind an operator with f(x - c) = f(x) - c."""
    shown = f"'{node.name}' ({node.op})"
    if node.op in RESHAPES:
        before, after = graph.shape(node.inputs[0]), graph.shape(node.outputs[0])
        moved = None if before is None or after is None else reshaped(layout, before, after)
        if moved is None:
            raise Stop(f"is read by {shown}, which mixes channels with axes of unknown length")
        return moved
    if node.op == "Transpose":
        return layout.transpose(node.attrs.get("perm"))
    padded = any(node.attrs.get("pads", ())) or node.attrs.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID")
    if node.op in CARRIES or (node.op == "AveragePool" and not (padded and node.attrs.get("count_include_pad", 0))):
        return layout
    raise Stop(f"is read by {shown}, which cannot carry a shift")


def _reader(graph: Graph, node: Node, layout: np.ndarray) -> Reader:
    shown = f"'{node.name}' ({node.op})"
    if not graph.is_constant(node.inputs[WEIGHT]):
        raise Stop(f"is read by {shown}, whose weight is computed")
    weight = graph.values(node.inputs[WEIGHT])
    group, by_rows, factor = int(node.attrs.get("group", 1)), bool(node.attrs.get("transB", 0)), 1.0
    inputs, axis = (weight.shape[1] * group, 1) if node.op == "Conv" else (weight.shape[1 if by_rows else 0], -1)
    if node.op == "Conv":
        if any(node.attrs.get("pads", ())) or node.attrs.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
            raise Stop(f"is read by {shown}, which pads with zeros")
    elif weight.ndim != 2 or node.attrs.get("transA", 0):
        raise Stop(f"is read by {shown}, which is no plain product with a matrix")
    if node.op == "Gemm":
        beta = float(node.attrs.get("beta", 1.0))
        factor = float(node.attrs.get("alpha", 1.0)) / beta if beta else math.inf
    bias = _bias_behind(graph, node) if node.op == "MatMul" else (node, BIAS) if has_input(node, BIAS) else None
    if bias is None or not math.isfinite(factor):
        raise Stop(f"is read by {shown}, which has no bias")
    held = own_values(graph, *bias)
    outputs = weight.shape[0] if node.op == "Conv" or by_rows else weight.shape[1]
    channels = vector_along(layout, axis, inputs, layout.ndim)
    if channels is None or held.size != outputs or held.shape[-1:] != (outputs,):
        raise Stop(f"is read by {shown}, whose channels or bias do not fit")
    names = node.inputs[WEIGHT].name, bias[0].inputs[bias[1]].name
    return Reader(node.name, node.op, *names, channels, group, by_rows, factor)


def _bias_behind(graph: Graph, matmul: Node) -> tuple[Node, int] | None:
    """The Add of a constant that alone reads a MatMul, and the port of the constant."""
    uses = graph.consumers(matmul.outputs[0])
    if len(uses) != 1 or graph.is_output(matmul.outputs[0]) or uses[0].node.op != "Add":
        return None
    port = 1 - uses[0].port
    return (uses[0].node, port) if graph.is_constant(uses[0].node.inputs[port]) else None
