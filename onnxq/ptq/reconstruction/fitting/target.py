"""Which float model a state is fitted to: the reference, where its layers compute what those of the state compute.

Weights that were rounded before are then compared with what they were. Equalized layers hand on other numbers than
those of the reference, though the model computes the same: there the present float graph is the only one whose tensors
can be fitted to. Each segment is given what the reference gives it, so that roundings of all layers do not add up to
another model: learning goes on from weights that GPTQ has rounded.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from onnxq.graph import Graph
from onnxq.ptq.reconstruction.blocks import Segment
from onnxq.ptq.reconstruction.fitting.segment_net import float_net
from onnxq.runtime.feeds import Feed
from onnxq.torchnet.values import from_numpy

LEAST_DB = 10.0
"""Below this signal to noise ratio a tensor is another one, and not the same with rounded weights."""


def float_model(graph: Graph, reference: Graph, segments: Sequence[Segment], feed: Feed) -> Graph:
    """The graph whose float values are to be reached; `feed` is a sample to compare the two on."""
    if not _same_nodes(graph, reference):
        return graph
    if _same_constants(graph, reference):
        return reference
    values = {name: from_numpy(feed[name]) for name in graph.input_names}
    last_reader = {name: number for number, segment in enumerate(segments) for name in segment.reads}
    with torch.no_grad():
        for number, segment in enumerate(segments):
            read = [values[name] for name in segment.reads]
            mine, its = (float_net(source, segment)(read) for source in (graph, reference))
            if not all(map(_agree, its, mine)):
                return graph
            values.update(zip(segment.makes, its, strict=True))
            for name in segment.reads:
                if last_reader[name] == number:
                    del values[name]
    return reference


def _same_nodes(graph: Graph, other: Graph) -> bool:
    return all(
        other.has_node(node.name)
        and [t.name for t in other.node(node.name).inputs] == [t.name for t in node.inputs]
        and [t.name for t in other.node(node.name).outputs] == [t.name for t in node.outputs]
        for node in graph.nodes()
    ) and all(
        other.has_tensor(constant.name) and other.shape(constant.name) == graph.shape(constant.name)
        for constant in graph.constants()
    )


def _same_constants(graph: Graph, other: Graph) -> bool:
    return all(
        np.array_equal(graph.values(constant), other.values(constant.name))
        for constant in graph.constants()
        if constant.dtype is None or constant.dtype.kind == "f"
    )


def _agree(wanted: object, found: object) -> bool:
    if not isinstance(wanted, Tensor) or not isinstance(found, Tensor) or not wanted.is_floating_point():
        return True
    if wanted.shape != found.shape:
        return False
    signal = float(wanted.double().square().sum())
    noise = float((wanted.double() - found.double()).square().sum())
    return noise <= signal * 10 ** (-LEAST_DB / 10)
