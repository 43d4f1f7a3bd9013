"""Channels of very different size under one scale, in activations and in weights."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from onnxq.diagnose.causes import ChannelsDiffer, Costly, DeadChannels
from onnxq.diagnose.evidence.case import Case, Evidence
from onnxq.diagnose.experiment import range_of, step_of, with_channels
from onnxq.diagnose.look import Channels
from onnxq.graph import Graph
from onnxq.types import PerTensor

UNLIKE = 8.0
"""Channels differ where the largest is this many times as large as that in the middle."""

FEW = 0.25
"""Part of the channels up to which those that are lost are a few."""


def channels(case: Case) -> Iterator[Evidence]:
    for row in case.costly:
        spec = case.state.qparams[row.name].spec
        if not spec.evenly_spaced or not isinstance(spec.granularity, PerTensor) or row.role == "bias":
            continue
        for name in row.tensors:
            found = _of_constant(case.graph, name) if case.graph.is_constant(name) else _of_seen(case, name)
            if found is not None and len(found.low) > 1:
                yield from _compared(case, row, name, found)
                break


def _of_seen(case: Case, name: str) -> Channels | None:
    return case.seen[name].channels if name in case.seen else None


def weight_axis(graph: Graph, name: str) -> int | None:
    """The axis of the output channels of a weight, by the layer that reads it; None where no layer does."""
    for use in graph.consumers(name):
        if use.port != 1:
            continue
        if use.node.op == "Conv":
            return 0
        if use.node.op == "ConvTranspose":
            return 1
        if use.node.op == "Gemm":
            return 0 if use.node.attrs.get("transB", 0) else 1
        if use.node.op == "MatMul":
            return len(graph.shape(name) or ()) - 1
    return None


def _of_constant(graph: Graph, name: str) -> Channels | None:
    axis = weight_axis(graph, name)
    if axis is None:
        return None
    values = np.moveaxis(graph.values(name).astype(np.float64), axis, 0)
    rows = values.reshape(len(values), -1)
    return Channels(axis, rows.min(axis=1), rows.max(axis=1)) if rows.size else None


def _compared(case: Case, row: Costly, name: str, found: Channels) -> Iterator[Evidence]:
    parameters = case.state.qparams[row.name]
    step, sizes = step_of(parameters), found.magnitude
    alive = sizes[sizes > 0]
    if not len(alive):
        return
    largest = float(sizes.max())
    lost = np.flatnonzero((sizes > 0) & (sizes < step))
    if 0 < len(lost) <= max(1, int(FEW * len(sizes))):
        low, high = (np.full(len(sizes), float(end)) for end in range_of(parameters))
        low[lost], high[lost] = found.low[lost], found.high[lost]
        size = float(sizes[lost].max())
        finding = DeadChannels(row.name, row.node, tuple(lost.tolist()), len(sizes), size, step, largest)
        yield Evidence(finding, with_channels(name, found.axis, low, high))
    median = float(np.median(alive))
    if largest >= UNLIKE * median:
        differ = ChannelsDiffer(row.name, row.node, int(sizes.argmax()), len(sizes), largest, median)
        yield Evidence(differ, with_channels(name, found.axis, found.low, found.high))
