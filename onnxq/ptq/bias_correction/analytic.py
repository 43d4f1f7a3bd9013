"""The shift of a layer's mean without data, where a BatchNormalization in front of it says what arrives.

Nagel, van Baalen, Blankevoort, Welling: "Data-Free Quantization Through Weight Equalization and Bias Correction", 2019.
A channel behind a BatchNormalization has mean beta and deviation |gamma|; a ReLU or Clip cuts it off, and the shift is
(W - Q) E[x]. Padding is left out of account. Targets that fold batch norms into weights have none left to ask: there,
samples are needed.
"""

from __future__ import annotations

import math

import numpy as np

from onnxq.graph import Graph, Node
from onnxq.numerics import fake_quantize
from onnxq.ptq.bias_correction.clipped_normal import clipped_mean
from onnxq.ptq.bias_correction.sites import BiasSite
from onnxq.ptq.method import State
from onnxq.ptq.weights.layers import readers_of


def expected_shift(state: State, site: BiasSite) -> np.ndarray | str:
    """(W - Q) E[x] for each output channel of a layer, or why it is not known."""
    graph, plan = state.graph, state.plan
    node = graph.node(site.node)
    weight = node.inputs[site.weight].name
    if weight not in plan:
        return "its weight is not quantized"
    means = expected_inputs(graph, node)
    if means is None:
        return "no BatchNormalization with constant statistics is right in front of it"
    if node.op == "MatMul" and (len(graph.shape(node.inputs[0]) or ()) != 2 or graph.values(weight).ndim != 2):
        return "it does not multiply the channels of the BatchNormalization with one matrix"
    readers = readers_of(graph, weight)
    if isinstance(readers, str):
        return readers
    view = readers[0].view
    values = graph.values(weight).astype(np.float32)
    change = view.unfold(values - fake_quantize(values, state.qparams[weight])).astype(np.float64)
    groups, _, columns = view.matrices
    if columns * groups % means.size:
        return "its inputs are not the channels of the BatchNormalization"
    expected = np.repeat(means.reshape(groups, -1), columns * groups // means.size, axis=1)
    return np.asarray((change @ expected[:, :, None]).reshape(-1))


def expected_inputs(graph: Graph, node: Node) -> np.ndarray | None:
    """E[x] of each input channel of a layer behind BatchNormalization, with or without Relu or Clip between."""
    low, high = -math.inf, math.inf
    before = graph.producer(node.inputs[0])
    if before is not None and before.op in ("Relu", "Clip") and not before.domain:
        if before.op == "Relu":
            low = 0.0
        else:
            ends = _ends(graph, before)
            if ends is None:
                return None
            low, high = ends
        before = graph.producer(before.inputs[0])
    if before is None or before.op != "BatchNormalization" or before.domain:
        return None
    gamma, beta = before.inputs[1:3]
    if not (graph.is_constant(gamma) and graph.is_constant(beta)):
        return None
    return clipped_mean(graph.values(beta), graph.values(gamma), low, high)


def _ends(graph: Graph, clip: Node) -> tuple[float, float] | None:
    ends = [float(clip.attrs.get("min", -math.inf)), float(clip.attrs.get("max", math.inf))]
    for port, tensor in enumerate(clip.inputs[1:3]):
        if tensor.name:
            if not graph.is_constant(tensor):
                return None
            ends[port] = float(graph.values(tensor))
    return ends[0], ends[1]
