"""Cross-layer equalization: channels are scaled so that each uses as much as possible of what its quantizers offer.

For a channel i of a tensor between two layers, with p_i the share it uses of the first weight's scale (or of that of
the activation, where that is more) and c_i the share its column uses of the second weight's,

    s_i = sqrt(p_i / c_i),     W1_i <- W1_i / s_i,     b1_i <- b1_i / s_i,     W2_i <- W2_i * s_i

makes both shares equal, which is the best product of the two (Nagel et al., "Data-Free Quantization Through Weight
Equalization and Bias Correction", 2019). Groups of channels follow one another until nothing moves, so that chains of
layers (1x1, depthwise, 1x1) are balanced as a whole. A channel with several layers on one side counts with the largest
share. With one scale per output channel the first weight follows by itself, and only the activation counts.

    relu6=data     a channel behind a Clip is scaled as long as no sample reaches the bound, before or after; the model
                   then computes the same on these samples. A channel that reaches the bound keeps its scale
    relu6=exact    no channel in front of a bound is scaled
    balance=mean   the mean magnitude of a channel of a weight counts, not the largest
    threshold=t    a channel whose largest weights on both sides are below t together keeps its scale
    steps=n        groups of channels follow one another n times at most
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from onnxq.graph import Graph
from onnxq.ptq.equalization.channel_statistics import ChannelLook, ChannelRanges, axes_of
from onnxq.ptq.equalization.precision import (
    ActivationShares,
    Size,
    WeightShares,
    activation_shares,
    largest_of_class,
    quantized_activations,
    weight_shares,
)
from onnxq.ptq.equalization.scalable_channels import (
    LARGEST_SCALE,
    ScalableChannels,
    apply_scales,
    changed_lines,
    declined_lines,
    find_scalable_channels,
    touches,
)
from onnxq.ptq.equalization.scaled_ranges import tell_scaled
from onnxq.ptq.method import FOR_EACH_CHANNEL, Improved, State, Task, at_least, improvement, limits, one_of
from onnxq.types import QuantPlan

HEADROOM = 1.5
"""Values of samples that are not seen may be this much larger before a bound is reached."""

MOST_SWEEPS = 30
SETTLED = 0.01
WORTH_WHILE = 0.03
"""Logarithms of scales: the last step of the iteration, and the smallest change that is carried out."""


@improvement(
    "cross_layer_equalization",
    "scales channels between layers so that weights and activations use all of their range",
    "Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction, 2019",
    {"relu6": "data", "activations": True, "balance": "max", "threshold": 0.0, "steps": MOST_SWEEPS},
    check=limits(
        "cross_layer_equalization",
        relu6=one_of("data", "exact"),
        balance=one_of("max", "mean"),
        threshold=at_least(0),
        steps=at_least(1),
    ),
    least_samples=FOR_EACH_CHANNEL,
    aliases=("cross_layer",),
    rescales=True,
)
def cross_layer_equalization(
    state: State, task: Task, *, relu6: str, activations: bool, balance: Size, threshold: float, steps: int
) -> Improved:
    """Equalize every group of channels that can be scaled; `activations` counts their ranges, not only weights'."""
    own = state.copy()
    scalable = find_scalable_channels(own.graph)
    tied = quantized_activations(own.plan, scalable) if activations else {}
    wanted = _looked_at(scalable, tied, bounds=relu6 == "data")
    look = ChannelLook(state.graph, scalable.layouts, wanted, {}, task, ())
    ranges = look.ranges(task.samples)
    scalable, lowest = _within_bounds(scalable, ranges if relu6 == "data" else None)
    weights = weight_shares(own.graph, own.plan, scalable, balance)
    if threshold > 0:
        scalable = _without_small_weights(scalable, weight_shares(own.graph, own.plan, scalable), threshold)
    solver = Balance(scalable, weights, activation_shares(tied, ranges), lowest)
    scales = solver.solve(steps)
    changed = changed_lines(scalable, scales)
    declined = [*declined_lines(scalable), *solver.idle_lines()]
    if not changed:
        return Improved(state, declined=tuple(declined))
    apply_scales(own.graph, scalable, scales)
    details = {"sweeps": solver.sweeps, "groups": len(scalable.groups)}
    tell_scaled(state, own, task, scalable, look.ranges, scales)
    return Improved(own, tuple(changed), tuple(declined), recalibrate=True, details=details)


def _looked_at(scalable: ScalableChannels, tied: Mapping[str, list[str]], *, bounds: bool) -> list[str]:
    """The tensors whose channels decide about scales: those behind bounds, and those with scales of their own."""
    bounded = [bound.tensor for bound in scalable.bounds] if bounds else []
    return list(dict.fromkeys([*bounded, *(name for names in tied.values() for name in names)]))


def scalable_channel_axes(graph: Graph, plan: QuantPlan) -> dict[str, int]:
    """Tensor -> the axis of its channels, for those that equalization looks at where nobody says otherwise."""
    scalable = find_scalable_channels(graph)
    wanted = _looked_at(scalable, quantized_activations(plan, scalable), bounds=True)
    return axes_of(graph, scalable.layouts, wanted)


def _without_small_weights(
    scalable: ScalableChannels, weights: list[WeightShares], threshold: float
) -> ScalableChannels:
    """The same without channels whose largest weights in front and behind are below `threshold` together."""
    made, read = np.zeros(scalable.classes), np.zeros(scalable.classes)
    for item in weights:
        largest_of_class(made, item.edit.down, item.magnitudes)
        largest_of_class(read, item.edit.up, item.magnitudes)
    small = np.flatnonzero(scalable.free() & (made + read < threshold))
    return scalable.without(small, f"its largest weights on both sides are below {threshold:g} together")


def _within_bounds(
    scalable: ScalableChannels, ranges: dict[str, ChannelRanges] | None
) -> tuple[ScalableChannels, np.ndarray]:
    """What the bounds of Clip leave to scale, and the smallest scale of each class; without ranges there is none."""
    lowest = np.full(scalable.classes, 1 / LARGEST_SCALE)
    for bound in scalable.bounds:
        seen = None if ranges is None else ranges.get(bound.tensor)
        name = f"'{bound.node}' (Clip)"
        if seen is None:
            scalable = scalable.without(
                bound.layout, f"{name} has bounds, which no scalar can express for each channel"
            )
            continue
        reach = np.zeros(len(seen.classes))
        if bound.high and math.isfinite(bound.high):
            reach = np.maximum(reach, seen.high / bound.high)
        if bound.low and math.isfinite(bound.low):
            reach = np.maximum(reach, seen.low / bound.low)
        np.maximum.at(lowest, seen.classes, HEADROOM * reach)
        close = seen.classes[HEADROOM * reach >= 1]
        if len(close):
            scalable = scalable.without(close, f"samples come close to or reach a bound of {name}")
    return scalable, lowest


class Balance:
    """The iteration over groups of channels."""

    def __init__(
        self,
        scalable: ScalableChannels,
        weights: list[WeightShares],
        activations: list[ActivationShares],
        lowest: np.ndarray,
    ) -> None:
        self.sweeps = 0
        self._freedom = scalable
        self._lowest = lowest
        self._members = [
            (
                group,
                [item for item in weights if item.makes and touches(item.edit.down, group)],
                [item for item in activations if touches(item.classes, group)],
                [item for item in weights if item.reads and touches(item.edit.up, group)],
            )
            for group in scalable.groups
        ]

    def solve(self, steps: int = MOST_SWEEPS) -> np.ndarray:
        """The scale of every class; exactly 1 where a change would be too small to matter."""
        scales = np.ones(self._freedom.classes)
        for self.sweeps in range(1, steps + 1):
            moved = 0.0
            for group, makers, activations, readers in self._members:
                step = _step(group, makers, activations, readers, scales)
                before = scales[group]
                limited = np.clip(before * np.exp(step), self._lowest[group], LARGEST_SCALE)
                scales[group] = np.where(step == 0, before, limited)
                moved = max(moved, float(np.abs(np.log(scales[group] / before)).max()))
            if moved < SETTLED:
                break
        for group, *_ in self._members:
            if np.abs(np.log(scales[group])).max() < WORTH_WHILE:
                scales[group] = 1.0
        return scales

    def idle_lines(self) -> list[str]:
        """A line for each layer whose channels could be scaled, but nothing would gain."""
        lines = []
        for item in self._freedom.made:
            for group, makers, activations, _ in self._members:
                if touches(item.variables, group) and not makers and not activations:
                    lines.append(f"'{item.node}' ({item.op}): neither it nor its output has one scale for all channels")
        return lines


def _step(
    group: np.ndarray,
    makers: list[WeightShares],
    activations: list[ActivationShares],
    readers: list[WeightShares],
    scales: np.ndarray,
) -> np.ndarray:
    """How far the logarithm of each scale should move; 0 for dead channels and where only one side is quantized."""
    made, read = np.zeros(len(scales)), np.zeros(len(scales))
    for maker in makers:
        maker.raise_shares(made, maker.edit.down, scales)
    for activation in activations:
        activation.raise_shares(made, scales)
    for reader in readers:
        reader.raise_shares(read, reader.edit.up, scales)
    p, c = made[group], read[group]
    if not makers and not activations:
        return np.zeros(len(group))
    if not readers:
        c = np.ones(len(group))  # nobody loses when the channel uses all of its range
    alive = (p > 0) & (c > 0)
    step = np.zeros(len(group))
    both = 0.5 * np.log(p[alive] / c[alive])
    looped = any(touches(maker.edit.up, group) for maker in makers)
    step[alive] = 0.5 * both if looped else both  # rows and columns of one weight move at once: half the way converges
    return step
