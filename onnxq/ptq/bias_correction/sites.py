"""Where a constant is added to the channels of a quantized layer, so that a shift of its mean can be taken back there.

    Conv, ConvTranspose, Gemm       their own bias
    MatMul -> Add                   the constant that is added
    Conv -> BatchNormalization      the bias of the batch norm, for targets that keep it apart

The output is looked at right behind the constant: in front of an activation function, and of its quantizer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from onnxq.graph import Graph, Node
from onnxq.graph.depths import depths_of
from onnxq.numerics import qparams_from_range
from onnxq.ptq.method import State

LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


@dataclass(frozen=True, eq=False)
class BiasSite:
    """A layer with the constant that is added to its channels.

    node     the layer; `weight` is the input number of its constant
    last     the node behind whose output the mean is compared
    axis     of the channels in that output
    gain     how much a channel of the layer's output changes that of `last` (a BatchNormalization scales)
    bias     the constant; a change of 1 moves the output by `weight_of_bias` (beta of a Gemm)
    level    how many other sites are passed on the longest way to this one
    """

    node: str
    weight: int
    last: str
    axis: int
    gain: np.ndarray | float
    bias: str
    weight_of_bias: float
    level: int


def bias_sites(state: State) -> tuple[list[BiasSite], list[str]]:
    """The sites of all quantized layers with a constant weight, in topological order, and why others have none."""
    graph = state.graph
    graph.sort()
    declined: list[str] = []
    ends: dict[str, BiasSite] = {}
    for node in graph.nodes():
        if node.op not in LAYERS or node.domain or node.name not in state.plan.quantized:
            continue
        if not any(graph.is_constant(tensor) for tensor in node.inputs[:2]):
            continue
        inside = graph.scope_of(node) is not graph.gs
        site = "it is inside the body of a node" if inside else _site(graph, node)
        if isinstance(site, str):
            declined.append(f"{node.name}: {site}")
        else:
            ends[site.last] = site
    found = [replace(ends[name], level=depth) for name, depth in depths_of(graph, ends).items()]
    return found, declined


def add_to_bias(state: State, site: BiasSite, shift: np.ndarray) -> None:
    """Move the mean of each channel behind a site; a bias with a range of its own gets a wider one where it needs it.

    The graph and the table of the state are changed.
    """
    graph, table = state.graph, state.qparams
    held = graph.values(site.bias)
    bias = (held + (shift / site.weight_of_bias).reshape(held.shape)).astype(held.dtype)
    graph.set_values(site.bias, bias)
    placement = state.plan.placements.get(site.bias)
    if placement is None or placement.derive is not None or placement.tie is not None or table[site.bias].scale.ndim:
        return
    spec = placement.spec
    if spec.evenly_spaced and spec.symmetric:
        needed = qparams_from_range(float(bias.min()), float(bias.max()), spec)
        if needed.scale > table[site.bias].scale:
            table.put(site.bias, needed, "bias_correction")


def _site(graph: Graph, node: Node) -> BiasSite | str:
    if node.op == "MatMul":
        return _behind_matmul(graph, node)
    if not graph.is_constant(node.inputs[1]):
        return "its weight is computed at run time"
    axis = 1 if node.op != "Gemm" else -1
    if len(node.inputs) > 2 and node.inputs[2].name:
        beta = float(node.attrs.get("beta", 1.0)) if node.op == "Gemm" else 1.0
        if beta == 0:
            return "its beta is 0, so that its bias counts for nothing"
        channels = _channels(graph, node)
        reason = _why_no_bias(graph, node.inputs[2], channels)
        return reason or BiasSite(node.name, 1, node.name, axis, 1.0, node.inputs[2].name, beta, 0)
    norm = _only_reader(graph, node)
    if norm is not None and norm.op == "BatchNormalization" and not norm.domain:
        scale, bias, _, variance = norm.inputs[1:5]
        if all(graph.is_constant(tensor) for tensor in (scale, bias, variance)):
            epsilon = float(norm.attrs.get("epsilon", 1e-5))
            gain = graph.values(scale) / np.sqrt(graph.values(variance).astype(np.float64) + epsilon)
            reason = _why_no_bias(graph, bias, gain.size)
            return reason or BiasSite(node.name, 1, norm.name, axis, gain, bias.name, 1.0, 0)
    return "it has no bias"


def _behind_matmul(graph: Graph, node: Node) -> BiasSite | str:
    if not graph.is_constant(node.inputs[1]):
        return "its weight is not its second input, so that its channels are rows"
    add = _only_reader(graph, node)
    if add is None or add.op != "Add" or add.domain:
        return "it has no bias"
    bias = next((tensor for tensor in add.inputs if graph.is_constant(tensor)), None)
    if bias is None:
        return "it has no bias"
    reason = _why_no_bias(graph, bias, graph.values(node.inputs[1]).shape[-1])
    return reason or BiasSite(node.name, 1, add.name, -1, 1.0, bias.name, 1.0, 0)


def _channels(graph: Graph, node: Node) -> int:
    shape = graph.values(node.inputs[1]).shape
    if node.op == "Conv":
        return int(shape[0])
    if node.op == "ConvTranspose":
        return int(shape[1]) * int(node.attrs.get("group", 1))
    return int(shape[0] if node.attrs.get("transB", 0) else shape[-1])


def _why_no_bias(graph: Graph, bias: object, channels: int) -> str | None:
    if not graph.is_constant(bias):
        return "its bias is computed at run time"
    shape = graph.values(bias).shape
    if shape[-1:] != (channels,) or int(np.prod(shape)) != channels:
        return f"its bias of shape {list(shape)} is not one number for each of {channels} channels"
    if len(graph.consumers(bias)) > 1 or graph.is_output(bias):
        return "its bias is used elsewhere too"
    return None


def _only_reader(graph: Graph, node: Node) -> Node | None:
    """The node behind a layer, where nobody else reads its output."""
    uses = graph.consumers(node.outputs[0])
    return uses[0].node if len(uses) == 1 and not graph.is_output(node.outputs[0]) else None
