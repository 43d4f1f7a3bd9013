"""AWQ: columns of weights that meet large activations are made larger, so that rounding costs them less.

Lin et al., "AWQ: Activation-aware Weight Quantization for LLM Compression and Acceleration", 2023. With

    s_i = mean|X_i|^alpha, divided by sqrt(max s * min s),      X_i <- X_i / s_i,      W_i <- W_i * s_i

a column is rounded to a grid that is s_i times finer where its inputs are large, as long as the column does not become
the one that decides the scale. alpha is searched for the layers that read a tensor (query, key, value) together: their
outputs are computed on some rows of the samples with quantized weights, and activations where these are quantized too.
The division goes into what makes the tensor, as in `smoothquant`; a tensor that somebody reads who cannot take s up
stays as it is. The second half of the paper, clipping by the error of outputs, is `weight_scale_search`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxq.graph import Graph
from onnxq.json_file import JsonObject
from onnxq.numerics import fake_quantize, qparams_from_range
from onnxq.observers import make_observer, observe_constant
from onnxq.ptq.equalization.channel_statistics import channel_axis, sample_rows, unknown_lines
from onnxq.ptq.equalization.flow import Edit
from onnxq.ptq.equalization.precision import WeightShares, is_coarse, read_as, weight_shares
from onnxq.ptq.equalization.scalable_channels import (
    LARGEST_SCALE,
    ScalableChannels,
    apply_scales,
    changed_lines,
    find_scalable_channels,
    held_input_lines,
    touches,
)
from onnxq.ptq.equalization.smoothing import products
from onnxq.ptq.method import FOR_EACH_CHANNEL, Improved, State, Task, at_least, improvement, limits
from onnxq.types import PerBlock, PerTensor, QuantPlan, QuantSpec
from onnxq.types.granularity import resolve_axis

LAYERS = ("MatMul", "Gemm", "Conv")


@improvement(
    "awq",
    "moves scales into the columns of weights that large activations are multiplied with",
    "Lin et al., AWQ, 2023",
    {"steps": 20},
    check=limits("awq", steps=at_least(1)),
    least_samples=FOR_EACH_CHANNEL,
    rescales=True,
)
def awq(state: State, task: Task, *, steps: int) -> Improved:
    """Scale the inputs of layers with quantized weights; `steps` values of alpha between 0 and 1 are tried."""
    own = state.copy()
    scalable = _movable(own.graph, own.plan)
    readers = _readers(own.graph, own.plan, scalable)
    rows = sample_rows(own.graph, {reader.tensor: reader.axis for reader in readers}, task, "inputs of layers")
    known = [reader for reader in readers if reader.tensor in rows]
    scales = np.ones(scalable.classes)
    declined = _declined(own.graph, own.plan, scalable)
    declined += unknown_lines({reader.edit.node: reader.tensor for reader in readers}, [item.tensor for item in known])
    details: JsonObject = {"alpha": {}, "error": {}}
    for group in scalable.groups:
        mine = [reader for reader in known if touches(scalable.layouts[reader.tensor], group)]
        if not mine:
            continue
        search = Scaling(own.graph, scalable, group, mine, rows)
        errors = {alpha: search.error(search.scales(alpha)) for alpha in np.arange(steps + 1) / steps}
        alpha = min(errors, key=lambda item: errors[item])
        if alpha == 0.0:
            names = ", ".join(dict.fromkeys(f"'{reader.edit.node}'" for reader in mine))
            declined.append(f"{names}: no alpha makes the error of the output smaller")
            continue
        scales[group] = search.scales(alpha)[group]
        for reader in mine:
            details["alpha"][reader.edit.node] = float(alpha)
            details["error"][reader.edit.node] = [errors[0.0], errors[alpha]]
    changed = changed_lines(scalable, scales)
    if not changed:
        return Improved(state, declined=tuple(declined))
    apply_scales(own.graph, scalable, scales)
    return Improved(own, tuple(changed), tuple(declined), recalibrate=True, details=details)


@dataclass(frozen=True)
class Reader:
    """A layer with a quantized weight; its input has channels along `axis` and the format `spec`, None for float."""

    edit: Edit
    tensor: str
    axis: int
    groups: int
    weight: QuantSpec
    spec: QuantSpec | None


def _movable(graph: Graph, plan: QuantPlan) -> ScalableChannels:
    """What can be scaled, without bounds of Clip and without rows that share their one scale with others."""
    scalable = find_scalable_channels(graph).without_bounds()
    for item in weight_shares(graph, plan, scalable):
        if item.makes and item.edit.op in (*LAYERS, "ConvTranspose") and not _has_scales_of_its_own(item):
            held = np.unique(item.edit.down)
            reason = f"the weight of '{item.edit.node}' makes it with one scale for all channels"
            scalable = scalable.without(held[scalable.free()[held]], reason)
    return scalable


def _has_scales_of_its_own(weight: WeightShares) -> bool:
    """Whether the blocks of a weight run along its inputs, so that no two of its outputs share a scale."""
    granularity, down = weight.spec.granularity, weight.edit.down
    if not isinstance(granularity, PerBlock):
        return False
    rank = weight.magnitudes.ndim
    blocks = resolve_axis(granularity.axis, rank)
    return all(length == 1 or axis + rank - down.ndim != blocks for axis, length in enumerate(down.shape))


def _readers(graph: Graph, plan: QuantPlan, scalable: ScalableChannels) -> list[Reader]:
    free = scalable.free()
    found = []
    for edit in scalable.edits:
        if edit.op not in LAYERS or edit.constant not in plan or not free[edit.up].any():
            continue
        placement, node = plan[edit.constant], graph.node(edit.node)
        tensor = node.inputs[0].name
        axis = channel_axis(scalable.layouts[tensor])
        if placement.role != "weight" or placement.observe_only or not is_coarse(placement.spec) or axis is None:
            continue
        groups = int(node.attrs.get("group", 1))
        found.append(Reader(edit, tensor, axis, groups, placement.spec, _read_as(plan, tensor, edit.node)))
    return found


def _read_as(plan: QuantPlan, tensor: str, node: str) -> QuantSpec | None:
    spec = read_as(plan, tensor, node)
    return spec if spec is not None and isinstance(spec.granularity, PerTensor) else None


def _declined(graph: Graph, plan: QuantPlan, scalable: ScalableChannels) -> list[str]:
    """A line for each layer with a quantized weight whose input cannot be scaled."""
    layers = (edit for edit in scalable.edits if edit.op in LAYERS and edit.constant in plan)
    return held_input_lines(graph, scalable, layers)


class Scaling:
    """The scales of one group of channels for any alpha, and the error that layers make with them."""

    def __init__(
        self,
        graph: Graph,
        scalable: ScalableChannels,
        group: np.ndarray,
        readers: list[Reader],
        rows: dict[str, np.ndarray],
    ) -> None:
        self._group = group
        self._layouts = scalable.layouts
        self._readers = readers
        self._rows = rows
        self._weights = {reader.edit.constant: graph.values(reader.edit.constant) for reader in readers}
        self._magnitude = np.zeros(scalable.classes)
        for reader in readers:
            classes = self._classes(reader)
            np.maximum.at(self._magnitude, classes, np.abs(rows[reader.tensor]).mean(0, dtype=np.float64))

    def _classes(self, reader: Reader) -> np.ndarray:
        """The class of each channel that a reader's rows have."""
        return np.broadcast_to(self._layouts[reader.tensor].ravel(), self._rows[reader.tensor].shape[1:])

    def scales(self, alpha: float) -> np.ndarray:
        """Scales around 1 for every class; those outside of the group, and of channels that are zero, are 1."""
        scales = np.ones(len(self._magnitude))
        alive = self._group[self._magnitude[self._group] > 0]
        if alpha and len(alive):
            own = self._magnitude[alive] ** alpha
            scales[alive] = np.clip(own / np.sqrt(own.max() * own.min()), 1 / LARGEST_SCALE, LARGEST_SCALE)
        return scales

    def error(self, scales: np.ndarray) -> float:
        """The mean over the layers of squared error / squared output."""
        return float(np.mean([self._error_of(reader, scales) for reader in self._readers]))

    def _error_of(self, reader: Reader, scales: np.ndarray) -> float:
        rows, weight = self._rows[reader.tensor], self._weights[reader.edit.constant]
        own = (rows / scales[self._classes(reader)]).astype(np.float32)
        if reader.spec is not None:
            own = fake_quantize(own, qparams_from_range(float(own.min()), float(own.max()), reader.spec))
        changed = (weight * scales[reader.edit.up]).astype(np.float32)
        changed = fake_quantize(changed, observe_constant(changed, make_observer("minmax"), reader.weight))
        expected = products(rows, weight, reader.edit, reader.groups)
        energy = float(np.square(expected, dtype=np.float64).sum())
        off = products(own, changed, reader.edit, reader.groups) - expected
        return float(np.square(off, dtype=np.float64).sum()) / energy if energy else 0.0
