"""High-bias absorption: a channel that never comes near zero gives what it always has to the bias of the next layer.

For y = W2 relu(x) + b2, x = W1 z + b1, and any c >= 0 with c_i <= min(x_i),

    relu(x - c) = relu(x) - c        hence        b1 <- b1 - c,     b2 <- b2 + W2 c

gives the same y, and the activation between the layers has the smaller range relu(x) - c (Nagel et al., "Data-Free
Quantization Through Weight Equalization and Bias Correction", 2019). The paper takes c = max(0, beta - 3 gamma) from a
batch norm. Here the samples tell: sigma = 0 takes the smallest value of each channel less a quarter of its range, so
that the model computes the same on them and others may lie a little lower; sigma = 3 takes mean - 3 standard
deviations, which cuts off the few values below.

Zero padding of the next convolution stands for zeros, not for -c: such layers are declined.
"""

from __future__ import annotations

import numpy as np

from onnxq.graph import Graph
from onnxq.ptq.equalization.channel_statistics import ChannelRanges, channel_ranges, sample_rows
from onnxq.ptq.equalization.shifts import Site, find_sites
from onnxq.ptq.method import Improved, State, Task, at_least, improvement, limits

MARGIN = 0.25
"""Part of the range of a channel by which values of other samples may lie below the smallest one that was seen."""

WORTH_WHILE = 0.99
"""The range of the activation has to fall below this part of what it was."""


@improvement(
    "high_bias_absorption",
    "moves what a channel always has at least into the bias of the next layer",
    "Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction, 2019",
    {"sigma": 0.0},
    check=limits("high_bias_absorption", sigma=at_least(0)),
    aliases=("absorb_bias",),
    rescales=True,
)
def high_bias_absorption(state: State, task: Task, *, sigma: float) -> Improved:
    """Absorb high biases where that makes the range of a quantized activation smaller."""
    own = state.copy()
    sites, declined = find_sites(own.graph, own.plan)
    layouts = {site.before: site.layout() for site in sites}
    ranges = channel_ranges(own.graph, layouts, layouts, task, "ranges of channels")
    axes = {site.before: site.axis for site in sites} if sigma else {}
    rows = sample_rows(own.graph, axes, task, "activations")
    changed, absorbed = [], {}
    for site in sites:
        seen = ranges.get(site.before)
        if seen is None:
            declined.append(f"'{site.node}': its values are not known")
            continue
        shift = _shift(seen, rows.get(site.before), sigma, site.high)
        reach = np.minimum(np.maximum(seen.high, 0), site.high)
        if (reach - shift).max() >= WORTH_WHILE * reach.max():
            declined.append(f"'{site.node}': the range of its output would stay what it is")
            continue
        _move(own.graph, site, shift)
        count = int((shift > 0).sum())
        changed.append(f"'{site.node}': {count} of {len(shift)} channels, up to {shift.max():.3g} of {reach.max():.3g}")
        absorbed[site.node] = float((reach - shift).max() / reach.max())
    if not changed:
        return Improved(state, declined=tuple(declined))
    return Improved(own, tuple(changed), tuple(declined), recalibrate=True, details={"range_left": absorbed})


def _shift(seen: ChannelRanges, rows: np.ndarray | None, sigma: float, high: float) -> np.ndarray:
    """c of each channel; 0 for those that reach an upper bound, which would be another one behind the shift."""
    least = seen.low - MARGIN * (seen.high - seen.low)
    if sigma and rows is not None:
        least = rows.mean(axis=0, dtype=np.float64) - sigma * rows.std(axis=0, dtype=np.float64)
    return np.asarray(np.where(seen.high < high, np.maximum(least, 0.0), 0.0))


def _move(graph: Graph, site: Site, shift: np.ndarray) -> None:
    bias = graph.values(site.bias)
    graph.set_values(site.bias, (bias.astype(np.float64) - shift.reshape(bias.shape)).astype(bias.dtype))
    for reader in site.readers:
        held = graph.values(reader.bias)
        more = reader.response(graph.values(reader.weight), shift).reshape(held.shape)
        graph.set_values(reader.bias, (held.astype(np.float64) + more).astype(held.dtype))
