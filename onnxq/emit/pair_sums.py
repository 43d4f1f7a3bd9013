"""Weights of 8 bits whose pairs of products fit into 16 bits, for kernels that add them there.

Kernels without VNNI add the products 2n and 2n + 1 of a sum in 16 bits (`onnxq.emit.saturation`). Activations are 0 to
255 there, so nothing saturates where |a + b| <= 128 for the two weights of each pair. Most channels have a few pairs
beyond that: their scale grows until the largest pair fits, which is less than the factor of two that 7 bits cost.
Channels without such a pair stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxq.graph import Graph
from onnxq.numerics import quantize
from onnxq.types import Placement, QParams
from onnxq.types.granularity import PerBlock, PerChannel, resolve_axis

LARGEST_PAIR = 128
_STEP = np.float32(1.002)
"""What a scale grows by where rounding has put a pair above the largest again."""
_STEPS = 50
_ONE_BY_ONE = ("Add", "Sub", "Mul", "Div", "PRelu")
"""Operators that add no products."""


def with_fitting_pairs(graph: Graph, placement: Placement, old: QParams) -> QParams | None:
    """Parameters with which no pair saturates, `old` ones where they fit; None where nobody knows the order of sums."""
    granularity = old.spec.granularity
    nodes = _readers(graph, placement)
    if isinstance(granularity, PerBlock) or not nodes:
        return None
    values = graph.values(graph.tensor(placement.tensor)).astype(np.float32, copy=False)
    axis = resolve_axis(granularity.axis, values.ndim) if isinstance(granularity, PerChannel) else None
    scale = old.scale
    for _ in range(_STEPS):
        parameters = QParams(old.spec, scale, old.zero_point)
        integers = quantize(values, parameters)
        largest = np.zeros(scale.shape, np.int64)
        for node, port in nodes:
            sums = _sums(node, port, integers)
            if sums is None:
                return None
            for pairs, channels in sums:
                largest = np.maximum(largest, _largest(pairs, channels, axis))
        if not (largest > LARGEST_PAIR).any():
            return parameters
        grown = scale * np.maximum(np.float32(1), (largest / LARGEST_PAIR).astype(np.float32))
        scale = np.where(largest > LARGEST_PAIR, np.maximum(grown, scale * _STEP), scale).astype(np.float32)
    return None


def _readers(graph: Graph, placement: Placement) -> list[tuple[Any, int]]:
    if placement.edges is None:
        return [(use.node, use.port) for use in graph.consumers(placement.tensor)]
    return [(graph.node(edge.node), edge.port) for edge in placement.edges]


def _sums(node: Any, port: int, integers: np.ndarray) -> list[tuple[np.ndarray, Sequence[int]]] | None:
    """The weights of each sum along the last axis, in the orders in which kernels may add, and the axes before it."""
    rank = integers.ndim
    if node.op == "Conv" and port == 1:
        if integers.shape[1] == 1 and int(node.attrs.get("group", 1)) == len(integers) > 1:
            return []  # depthwise kernels multiply and add in 32 bits
        moved = np.moveaxis(integers, 1, -1)  # kernels see channels last
        whole = moved.reshape(len(moved), -1)
        return [(whole, (0,)), (moved.reshape(len(moved), -1, moved.shape[-1]), (0, -1))]
    if node.op in _ONE_BY_ONE:
        return []
    if node.op == "MatMul" and rank >= 2 and port in (0, 1):
        summed = rank - 1 - port
    elif node.op == "Gemm" and port == 1:
        summed = 1 if node.attrs.get("transB", 0) else 0
    elif node.op == "LSTM" and port in (1, 2):
        summed = rank - 1
    else:
        return None
    return [(np.moveaxis(integers, summed, -1), [at for at in range(rank) if at != summed])]


def _largest(weights: np.ndarray, channels: Sequence[int], axis: int | None) -> np.ndarray:
    """The largest |a + b| of the pairs along the last axis, for each scale; `channels` name the axes before it."""
    wide = weights.astype(np.int16)
    if wide.shape[-1] % 2:
        wide = np.concatenate([wide, np.zeros((*wide.shape[:-1], 1), np.int16)], axis=-1)
    pairs = np.abs(wide[..., 0::2] + wide[..., 1::2]).max(axis=-1, initial=0)
    if axis is None or axis not in channels:
        return np.asarray(pairs.max(initial=0), np.int64)
    others = tuple(at for at, name in enumerate(channels) if name != axis)
    return np.asarray(pairs.max(axis=others, initial=0), np.int64)
