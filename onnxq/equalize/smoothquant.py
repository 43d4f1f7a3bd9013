"""SmoothQuant: large channels of activations are divided, and the weights that read them multiplied.

A few channels of a transformer are tens of times larger than the others and take all steps of their common scale. With

    s_i = max|X_i|^alpha / max|W_i|^(1 - alpha),      X_i <- X_i / s_i,      W_i <- W_i * s_i

the difficulty moves from the activation to the weight (Xiao et al., "SmoothQuant: Accurate and Efficient Post-Training
Quantization for Large Language Models", 2022). The division goes into what makes the tensor: gamma and beta of a
normalisation, the constant of a Mul, a layer in front. All layers that read the tensor (query, key, value) share s. A
tensor that somebody reads who cannot take s up, such as a residual Add, stays as it is.

alpha = 0 searches it for each tensor: the layers are computed on some rows of the samples with quantized activations
and weights, and the alpha with the smallest squared error, relative to the output of each layer, is taken; or none.
Other quantized tensors with the same channels, such as inputs of a residual Add, count as noise of their step^2 / 12.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxq.equalize.flow import Edit
from onnxq.equalize.freedom import (
    LARGEST_SCALE,
    Freedom,
    carry_out,
    changed_lines,
    find_freedom,
    touches,
)
from onnxq.equalize.observed import ChannelRanges, channel_axis, channel_ranges
from onnxq.equalize.precision import WeightShares, is_coarse, largest_of_class, quantized_activations, weight_shares
from onnxq.equalize.rows import sample_rows
from onnxq.errors import ConfigError
from onnxq.graph import Graph
from onnxq.improvement import Improved, State, Task, improvement
from onnxq.numerics import fake_quantize, qparams_from_range
from onnxq.observers import make_observer, observe_constant
from onnxq.types import PerTensor, QParams, QuantPlan, QuantSpec

ALPHAS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
WORTH_WHILE = 0.98
"""Errors have to fall below this part of what they were."""

LAYERS = ("MatMul", "Gemm", "Conv", "ConvTranspose")


@improvement(
    "smoothquant",
    "moves outliers of activations into the weights that read them",
    "Xiao et al., SmoothQuant, 2022",
    {"alpha": 0.0},
)
def smoothquant(state: State, task: Task, *, alpha: float) -> Improved:
    """Smooth the inputs of layers; alpha between 0 and 1, 0 searches it for each tensor."""
    if not 0 <= alpha <= 1:
        raise ConfigError(f"alpha of improvement 'smoothquant' lies between 0 (search) and 1, got {alpha:g}")
    own = state.copy()
    freedom = find_freedom(own.graph)
    for bound in freedom.bounds:
        freedom = freedom.without(bound.layout, f"'{bound.node}' (Clip) has a bound that cannot be scaled")
    shares = weight_shares(own.graph, own.plan, freedom)
    freedom = _without_shared_scales(shares, freedom)
    readers = _readers(own.graph, own.plan, freedom)
    axes = {reader.tensor: reader.axis for reader in readers}
    tied = quantized_activations(own.plan, freedom)
    wanted = dict.fromkeys([*axes, *(name for names in tied.values() for name in names)])
    ranges = channel_ranges(own.graph, freedom.layouts, wanted, task, "ranges of channels")
    rows = sample_rows(own.graph, axes, task, "inputs of layers")
    readers = [reader for reader in readers if reader.tensor in ranges and reader.tensor in rows]
    scales = np.ones(freedom.classes)
    details: dict[str, Any] = {"alpha": {}, "error": {}}
    declined = _declined(own.graph, own.plan, freedom)
    for group in freedom.groups:
        mine = [reader for reader in readers if touches(freedom.layouts[reader.tensor], group)]
        if not mine:
            continue
        beside = [(own.plan[name].spec, ranges[name]) for name in _beside(own.plan, tied, mine) if name in ranges]
        beside = [(spec, seen) for spec, seen in beside if touches(seen.classes, group)]
        makers = [item for item in shares if item.makes and touches(item.edit.down, group)]
        smoothing = Smoothing(own.graph, group, mine, makers, beside, ranges, rows, freedom.classes)
        found = smoothing.best(ALPHAS if alpha == 0 else (alpha,))
        names = ", ".join(dict.fromkeys(f"'{reader.edit.node}'" for reader in mine))
        if found is None:
            declined.append(f"{names}: no alpha makes the error of the output smaller")
            continue
        chosen, before, after = found
        scales[group] = smoothing.scales(chosen)[group]
        for reader in mine:
            details["alpha"][reader.edit.node] = chosen
            details["error"][reader.edit.node] = [before, after]
    changed = changed_lines(freedom, scales)
    if not changed:
        return Improved(state, declined=tuple(declined))
    carry_out(own.graph, freedom, scales)
    return Improved(own, tuple(changed), tuple(declined), recalibrate=True, details=details)


@dataclass(frozen=True)
class Reader:
    """A layer that reads a tensor quantized; `spec` is the tensor's format, `weight` that of the constant, if any."""

    edit: Edit
    tensor: str
    axis: int
    spec: QuantSpec
    weight: QuantSpec | None
    groups: int


def _readers(graph: Graph, plan: QuantPlan, freedom: Freedom) -> list[Reader]:
    free = freedom.free()
    found = []
    for edit in freedom.edits:
        if edit.op not in LAYERS or not free[edit.up].any():
            continue
        node = graph.node(edit.node)
        tensor = node.inputs[0].name
        axis = channel_axis(freedom.layouts[tensor])
        spec = _read_as(plan, tensor, edit.node)
        if axis is not None and spec is not None and isinstance(spec.granularity, PerTensor):
            weight = plan[edit.constant].spec if edit.constant in plan else None
            groups = int(node.attrs.get("group", 1))
            found.append(Reader(edit, tensor, axis, spec, weight, groups))
    return found


def _read_as(plan: QuantPlan, tensor: str, node: str) -> QuantSpec | None:
    """The format in which a node reads a tensor; None for float."""
    if tensor not in plan:
        return None
    placement = plan[tensor]
    seen = placement.edges is None or (node, 0) in placement.edges
    return placement.spec if seen and is_coarse(placement.spec) else None


def _without_shared_scales(shares: list[WeightShares], freedom: Freedom) -> Freedom:
    """A weight with one scale for all its rows would lose what the activation gains: cross_layer weighs the two."""
    for item in shares:
        if item.makes and item.edit.op in LAYERS:
            reason = f"the weight of '{item.edit.node}' makes it with one scale for all channels (see cross_layer)"
            lost = np.unique(item.edit.down)
            freedom = freedom.without(lost[freedom.free()[lost]], reason)
    return freedom


def _declined(graph: Graph, plan: QuantPlan, freedom: Freedom) -> list[str]:
    """A line for each layer whose input is quantized and cannot be scaled."""
    lines = []
    for edit in freedom.edits:
        if edit.op not in LAYERS or edit.up.size == 1:
            continue
        tensor = graph.node(edit.node).inputs[0].name
        kept = [number for number in np.unique(edit.up).tolist() if number in freedom.reasons]
        if kept and _read_as(plan, tensor, edit.node) is not None:
            lines.append(f"'{edit.node}' ({edit.op}) reads '{tensor}' as it is: {freedom.reasons[kept[0]]}")
    return lines


def _beside(plan: QuantPlan, tied: dict[str, list[str]], readers: list[Reader]) -> list[str]:
    """Quantized tensors with scales of their own, other than those that the readers read."""
    read = {plan.leader(reader.tensor) for reader in readers}
    return [name for leader, names in tied.items() if leader not in read for name in names]


class Smoothing:
    """The scales of one group of channels for any alpha, and the error that layers make with them."""

    def __init__(
        self,
        graph: Graph,
        group: np.ndarray,
        readers: list[Reader],
        makers: list[WeightShares],
        beside: list[tuple[QuantSpec, ChannelRanges]],
        ranges: dict[str, ChannelRanges],
        rows: dict[str, np.ndarray],
        classes: int,
    ) -> None:
        self._group = group
        self._readers = readers
        self._beside = beside
        self._makers = [(item, graph.values(item.edit.constant)) for item in makers]
        self._ranges = ranges
        self._rows = rows
        self._weights = {reader.edit.constant: graph.values(reader.edit.constant) for reader in readers}
        self._activation, self._weight = np.zeros(classes), np.zeros(classes)
        for reader in readers:
            seen = ranges[reader.tensor]
            largest_of_class(self._activation, seen.classes, seen.magnitude)
            magnitudes = np.abs(self._weights[reader.edit.constant]).astype(np.float64)
            largest_of_class(self._weight, reader.edit.up, magnitudes)

    def scales(self, alpha: float) -> np.ndarray:
        """Scales around 1 for every class; those outside of the group are 1."""
        scales = np.ones(len(self._weight))
        alive = self._group[(self._activation[self._group] > 0) & (self._weight[self._group] > 0)]
        if len(alive):
            logarithms = alpha * np.log(self._activation[alive]) - (1 - alpha) * np.log(self._weight[alive])
            scales[alive] = np.clip(np.exp(logarithms - logarithms.mean()), 1 / LARGEST_SCALE, LARGEST_SCALE)
        return scales

    def best(self, alphas: tuple[float, ...]) -> tuple[float, float, float] | None:
        """The alpha with the smallest error, the error without it and with it; None if none is worth while."""
        before = self._error(np.ones(len(self._weight)))
        errors = {alpha: self._error(self.scales(alpha)) for alpha in alphas}
        alpha = min(errors, key=lambda item: errors[item])
        if len(alphas) > 1 and errors[alpha] >= WORTH_WHILE * before:
            return None
        return alpha, before, errors[alpha]

    def _error(self, scales: np.ndarray) -> float:
        """The mean over the layers of squared error / squared output."""
        made = self._made(scales)
        return float(np.mean([self._error_of(reader, scales, made) for reader in self._readers]))

    def _made(self, scales: np.ndarray) -> np.ndarray:
        """By which factor the values of each class are wrong because gamma, or another constant, is quantized."""
        factors = np.ones(len(scales))
        for item, values in self._makers:
            own = (values / scales[item.edit.down]).astype(np.float32)
            stored = fake_quantize(own, observe_constant(own, make_observer("minmax"), item.spec))
            factors[item.edit.down] = np.where(own == 0, 1.0, stored / np.where(own == 0, 1.0, own))
        return factors

    def _error_of(self, reader: Reader, scales: np.ndarray, made: np.ndarray) -> float:
        seen, rows = self._ranges[reader.tensor], self._rows[reader.tensor]
        own = (rows * (made / scales)[seen.classes]).astype(np.float32)
        quantized = fake_quantize(own, _qparams(seen, scales, reader.spec))
        weight = self._weights[reader.edit.constant]
        changed = (weight * scales[reader.edit.up]).astype(np.float32)
        if reader.weight is not None:
            changed = fake_quantize(changed, observe_constant(changed, make_observer("minmax"), reader.weight))
        expected = _layer(rows, weight, reader)
        found = _layer(quantized, changed, reader)
        noise = sum(float(_qparams(other, scales, spec).scale) ** 2 / 12 for spec, other in self._beside)
        error = _energy(found - expected) + noise * len(rows) * _energy(changed)
        energy = _energy(expected)
        return error / energy if energy else 0.0


def _energy(values: np.ndarray) -> float:
    return float(np.square(values, dtype=np.float64).sum())


def _qparams(seen: ChannelRanges, scales: np.ndarray, spec: QuantSpec) -> QParams:
    """The parameters of a tensor whose channels are scaled, from the smallest to the largest value."""
    own = scales[seen.classes]
    return qparams_from_range(float((seen.low / own).min()), float((seen.high / own).max()), spec)


def _layer(rows: np.ndarray, weight: np.ndarray, reader: Reader) -> np.ndarray:
    """What a layer makes of rows; a convolution with the products of each position of its kernel side by side."""
    if reader.edit.op == "Gemm" and reader.edit.up.shape[0] == 1:
        weight = weight.T
    elif reader.edit.op == "Conv":  # [out, in / group, k...] -> [group, in / group, out / group * k...]
        split = weight.reshape(reader.groups, weight.shape[0] // reader.groups, weight.shape[1], -1)
        weight = split.transpose(0, 2, 1, 3)
    inputs = rows.shape[1] // reader.groups
    apart = rows.reshape(len(rows), reader.groups, inputs).transpose(1, 0, 2)
    return np.asarray(np.matmul(apart, weight.reshape(reader.groups, inputs, -1)))
