"""SmoothQuant: large channels of activations are divided, and the weights that read them multiplied.

A few channels of a transformer are tens of times larger than the others and take all steps of their common scale. With

    s_i = max|X_i|^alpha / max|W_i|^(1 - alpha),      X_i <- X_i / s_i,      W_i <- W_i * s_i

the difficulty moves from the activation to the weight (Xiao et al., "SmoothQuant: Accurate and Efficient Post-Training
Quantization for Large Language Models", 2022). The division goes into what makes the tensor: gamma and beta of a
normalisation, the constant of a Mul, a layer in front. All layers that read the tensor (query, key, value) share s. A
tensor that somebody reads who cannot take s up, such as a residual Add, stays as it is (see `insert_smoothing`).

alpha = 0 searches it for each tensor: the layers are computed on some rows of the samples with quantized activations
and weights, and the alpha with the smallest squared error, relative to the output of each layer, is taken; or none.
Other quantized tensors with the same channels, such as inputs of a residual Add, count as noise of their step^2 / 12.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onnxq.graph import Graph
from onnxq.json_file import JsonObject
from onnxq.ptq.equalization.channel_statistics import ChannelLook, channel_axis, unknown_lines
from onnxq.ptq.equalization.precision import WeightShares, quantized_activations, read_as, weight_shares
from onnxq.ptq.equalization.scalable_channels import (
    ScalableChannels,
    apply_scales,
    changed_lines,
    find_scalable_channels,
    held_input_lines,
    touches,
)
from onnxq.ptq.equalization.scaled_ranges import tell_scaled
from onnxq.ptq.equalization.smoothing import Reader, Smoothing
from onnxq.ptq.method import FOR_EACH_CHANNEL, Improved, Limit, Samples, State, Task, improvement, limits
from onnxq.types import PerTensor, QuantPlan

ALPHAS = (0.3, 0.5, 0.7, 0.9)
LAYERS = ("MatMul", "Gemm", "Conv", "ConvTranspose")
TRIED_ON = 4
"""Samples that tell whether there is much to gain."""

ALPHA = Limit("lies between 0 (search) and 1", lambda value: 0 <= value <= 1)


@improvement(
    "smoothquant",
    "moves outliers of activations into the weights that read them",
    "Xiao et al., SmoothQuant, 2022",
    {"alpha": 0.0, "unseen": True},
    check=limits("smoothquant", alpha=ALPHA),
    least_samples=FOR_EACH_CHANNEL,
    rescales=True,
)
def smoothquant(state: State, task: Task, *, alpha: float, unseen: bool) -> Improved:
    """Smooth the inputs of layers; alpha between 0 and 1, 0 searches it for each tensor, on samples not seen or all."""
    own = state.copy()
    scalable, shares = movable(own)
    subject = Subject(own, task, scalable, shares, look_at(own, task, scalable))
    found, scales = smooth(subject, alpha, unseen=unseen)
    if not found.changed:
        return Improved(state, declined=found.declined)
    tell_scaled(state, found.state, task, scalable, subject.look.ranges, scales)
    return found


class Subject:
    """A state of one's own whose channels are to be scaled, and what is seen of them on the samples of a task."""

    def __init__(
        self, own: State, task: Task, scalable: ScalableChannels, shares: list[WeightShares], look: ChannelLook
    ) -> None:
        self.own, self.scalable, self.shares, self.look = own, scalable, shares, look
        self.all = task.samples
        self.few = task.samples.first(TRIED_ON)
        self.halves = _halves(task.samples)
        self.readers = _readers(own.graph, own.plan, scalable)
        self.tied = quantized_activations(own.plan, scalable)


def look_at(own: State, task: Task, scalable: ScalableChannels) -> ChannelLook:
    """What a subject sees of the channels of a state, before anything of it is scaled."""
    axes = {reader.tensor: reader.axis for reader in _readers(own.graph, own.plan, scalable)}
    tied = quantized_activations(own.plan, scalable)
    wanted = dict.fromkeys([*axes, *(name for names in tied.values() for name in names)])
    parts = (task.samples, task.samples.first(TRIED_ON), _halves(task.samples)[1])
    return ChannelLook(own.graph, scalable.layouts, wanted, axes, task, parts)


def smooth(subject: Subject, alpha: float, *, unseen: bool) -> tuple[Improved, np.ndarray]:
    """Scale the groups of channels in the graph of the subject's state; nothing is `changed` if none gains.

    Also the scale of every class.
    """
    own, scalable = subject.own, subject.scalable
    one, other = subject.halves if unseen else (subject.all, subject.all)
    scales, details, declined = _smoothing_scales(subject, alpha, one, other)
    changed = changed_lines(scalable, scales)
    if not changed:
        return Improved(own, declined=tuple(declined)), scales
    apply_scales(own.graph, scalable, scales)
    return Improved(own, tuple(changed), tuple(declined), recalibrate=True, details=details), scales


def removable_noise(subject: Subject) -> float:
    """What smoothing takes off the errors of layers, each by its squared output, as a few samples tell.

    Noise of a layer reaches the outputs about as large as it is there, so that no more than this is to be gained.
    """
    _, details, _ = _smoothing_scales(subject, 0.0, subject.few, subject.few)
    return float(sum(before - after for before, after in details["error"].values()))


def _smoothing_scales(
    subject: Subject, alpha: float, one: Samples, other: Samples
) -> tuple[np.ndarray, JsonObject, list[str]]:
    """The scale of every class, alpha and errors of each layer, and a line for each layer that stays as it is.

    Ranges of the samples `one` decide about alpha, by errors on `other`; the scales have the ranges of both.
    """
    own, scalable, shares = subject.own, subject.scalable, subject.shares
    readers, tied = subject.readers, subject.tied
    half = ranges = subject.look.ranges(one)
    if other.numbers != one.numbers:
        rest = subject.look.ranges(other)
        ranges = {name: seen.joined(rest[name]) for name, seen in half.items() if name in rest}
    rows = subject.look.rows(other)
    known = [reader for reader in readers if reader.tensor in ranges and reader.tensor in rows]
    scales = np.ones(scalable.classes)
    details: JsonObject = {"alpha": {}, "error": {}}
    declined = _declined(own.graph, own.plan, scalable)
    declined += unknown_lines({reader.edit.node: reader.tensor for reader in readers}, [item.tensor for item in known])
    for group in scalable.groups:
        mine = [reader for reader in known if touches(scalable.layouts[reader.tensor], group)]
        if not mine:
            continue
        beside = [(own.plan[name].spec, half[name]) for name in _beside(own.plan, tied, mine) if name in half]
        beside = [(spec, seen) for spec, seen in beside if touches(seen.classes, group)]
        makers = [item for item in shares if item.makes and touches(item.edit.down, group)]
        smoothing = Smoothing(own.graph, group, mine, makers, beside, half, rows, scalable.classes)
        found = smoothing.best(ALPHAS if alpha == 0 else (alpha,))
        names = ", ".join(dict.fromkeys(f"'{reader.edit.node}'" for reader in mine))
        if found is None:
            declined.append(f"{names}: no alpha makes the error of the output smaller")
            continue
        chosen, before, after = found
        scales[group] = smoothing.scales(chosen, ranges)[group]
        for reader in mine:
            details["alpha"][reader.edit.node] = chosen
            details["error"][reader.edit.node] = [before, after]
    return scales, details, declined


def _halves(samples: Samples) -> tuple[Samples, Samples]:
    """The samples that ranges are found on, and others that errors are measured on.

    A large alpha brings each channel to its own largest value, so that a value above it, in any channel, is cut off:
    on the samples of the ranges themselves it would always look best.
    """
    numbers = samples.numbers
    if len(numbers) < 2:
        return samples, samples
    return replace(samples, numbers=numbers[::2]), replace(samples, numbers=numbers[1::2])


def movable(state: State) -> tuple[ScalableChannels, list[WeightShares]]:
    """What can be scaled, without bounds of Clip and without rows that share their one scale with others."""
    scalable = find_scalable_channels(state.graph).without_bounds()
    shares = weight_shares(state.graph, state.plan, scalable)
    return _without_shared_scales(shares, scalable), shares


def _readers(graph: Graph, plan: QuantPlan, scalable: ScalableChannels) -> list[Reader]:
    free = scalable.free()
    found = []
    for edit in scalable.edits:
        if edit.op not in LAYERS or not free[edit.up].any():
            continue
        node = graph.node(edit.node)
        tensor = node.inputs[0].name
        axis = channel_axis(scalable.layouts[tensor])
        spec = read_as(plan, tensor, edit.node)
        if axis is not None and spec is not None and isinstance(spec.granularity, PerTensor):
            weight = plan[edit.constant].spec if edit.constant in plan else None
            groups = int(node.attrs.get("group", 1))
            found.append(Reader(edit, tensor, axis, spec, weight, groups))
    return found


def _without_shared_scales(shares: list[WeightShares], scalable: ScalableChannels) -> ScalableChannels:
    """A weight with one scale for all its rows would lose what the activation gains (see cross_layer_equalization)."""
    for item in shares:
        if item.makes and item.edit.op in LAYERS:
            made = f"the weight of '{item.edit.node}' makes it with one scale for all channels"
            reason = f"{made} (see cross_layer_equalization)"
            lost = np.unique(item.edit.down)
            scalable = scalable.without(lost[scalable.free()[lost]], reason)
    return scalable


def _declined(graph: Graph, plan: QuantPlan, scalable: ScalableChannels) -> list[str]:
    """A line for each layer whose input is quantized and cannot be scaled."""
    layers = (edit for edit in scalable.edits if edit.op in LAYERS)
    quantized = (edit for edit in layers if read_as(plan, graph.node(edit.node).inputs[0].name, edit.node) is not None)
    return held_input_lines(graph, scalable, quantized)


def _beside(plan: QuantPlan, tied: dict[str, list[str]], readers: list[Reader]) -> list[str]:
    """Quantized tensors with scales of their own, other than those that the readers read."""
    read = {plan.leader(reader.tensor) for reader in readers}
    return [name for leader, names in tied.items() if leader not in read for name in names]
