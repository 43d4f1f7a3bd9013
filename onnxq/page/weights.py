"""Weights as the page shows them: the range of every channel, channels that vanish, what rounding costs."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from onnxq.graph import Graph
from onnxq.json_file import JsonObject
from onnxq.numerics import SqnrAccumulator, fake_quantize
from onnxq.page.histogram import Histogram
from onnxq.page.numbers import packed, short
from onnxq.types import PerBlock, PerChannel, QParams, QParamsTable, QuantPlan

MOST_CHANNELS = 1024
"""Bars of a chart; of a weight with more channels, neighbours share one."""

MOST_ROUNDED = 1 << 15
"""Numbers of a weight that are rounded to see what that costs; of larger ones every n-th of a channel is."""


def weights_json(
    graph: Graph, plan: QuantPlan, qparams: QParamsTable, aliases: Mapping[str, str]
) -> dict[str, JsonObject]:
    """Weight -> its channels; `aliases` has those that the graph calls otherwise. What it does not hold is left out."""
    found = {}
    for placement in plan:
        name = placement.tensor
        if placement.role != "weight" or name not in qparams.entries:
            continue
        held = aliases.get(name, name)
        if graph.has_tensor(held) and graph.is_constant(held):
            values = graph.values(held)
            if values.dtype.kind == "f" and values.size:
                found[name] = weight_json(values.astype(np.float32, copy=False), qparams[name])
    return found


def weight_json(values: np.ndarray, held: QParams) -> JsonObject:
    rows, axis = by_channel(values, held)
    low, high = rows.min(axis=1), rows.max(axis=1)
    step = _step_by_channel(held, len(rows))
    largest = np.maximum(-low, high)
    zero = np.flatnonzero(largest == 0)
    vanishing = np.flatnonzero((largest > 0) & (largest < 0.5 * step)) if step is not None else zero[:0]
    together = math.ceil(len(rows) / MOST_CHANNELS)
    data: JsonObject = {
        "shape": list(values.shape),
        "axis": axis,
        "channels": len(rows),
        "together": together,
        "low": packed(_grouped(low, together, np.minimum)),
        "high": packed(_grouped(high, together, np.maximum)),
        "zero": zero[:MOST_CHANNELS].tolist(),
        "vanishing": vanishing[:MOST_CHANNELS].tolist(),
        "own_db": short(own_db(rows, held), 4),
    }
    if step is not None and not held.scale.ndim:
        data["step"] = short(float(held.scale), 4)
    histogram = Histogram.of(values, MOST_ROUNDED)
    if histogram is not None:
        data["histogram"] = histogram.to_json()
    return data


def by_channel(values: np.ndarray, held: QParams) -> tuple[np.ndarray, int]:
    """A row for each channel, and the axis of channels: that of the scales, else the first."""
    granularity = held.spec.granularity
    if values.ndim == 0:
        return values.reshape(1, 1), 0
    axis = granularity.axis % values.ndim if isinstance(granularity, PerChannel) else 0
    return np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1), axis


def own_db(rows: np.ndarray, held: QParams) -> float | None:
    """SQNR of a weight that is rounded; None where its numbers are scaled in blocks, and a part says nothing."""
    spec = held.spec
    if isinstance(spec.granularity, PerBlock) or not spec.has_scale:
        return None
    columns = max(1, MOST_ROUNDED // len(rows))
    part = np.ascontiguousarray(rows[:, :: max(1, rows.shape[1] // columns)])
    if part.size > 2 * MOST_ROUNDED and held.scale.ndim == 0:
        part = part[:: part.shape[0] * part.shape[1] // MOST_ROUNDED]
    elif part.size > 8 * MOST_ROUNDED:
        return None
    moved = spec.replace(granularity=PerChannel(0)) if held.scale.ndim else spec
    total = SqnrAccumulator()
    total.add(part, fake_quantize(part, QParams(moved, held.scale, held.zero_point)))
    return total.value


def _step_by_channel(held: QParams, channels: int) -> np.ndarray | None:
    """The step of each channel; None where there is no single one."""
    if not held.spec.evenly_spaced or not held.spec.has_scale or isinstance(held.spec.granularity, PerBlock):
        return None
    return np.broadcast_to(held.scale, (channels,)) if held.scale.size in (1, channels) else None


def _grouped(values: np.ndarray, together: int, how: np.ufunc) -> np.ndarray:
    if together == 1:
        return values
    return np.asarray(how.reduceat(values, np.arange(0, len(values), together)))
