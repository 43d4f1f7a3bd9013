"""How much of its quantizer's range each channel uses, for weights and activations that have quantizers.

The share of a channel is its largest magnitude divided by the largest of all that have the same scale: 1 uses every
step, 0.01 one step in a hundred. Scaling a channel moves its share in what the channel is made of (rows of a weight,
the activation itself) one way, and its share in what reads it (columns of the next weight) the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from onnxq.graph import Graph
from onnxq.ptq.equalization.channel_statistics import ChannelRanges
from onnxq.ptq.equalization.flow import Edit
from onnxq.ptq.equalization.scalable_channels import ScalableChannels
from onnxq.ptq.equalization.variables import Layout
from onnxq.types import PerChannel, PerTensor, QuantPlan, QuantSpec
from onnxq.types.granularity import resolve_axis

FEW_BITS = 16
"""From this many bits on a channel may use a small share without loss."""

Size = Literal["max", "mean"]
"""What stands for the size of a channel: its largest magnitude, or the mean of all."""

TINY = float(np.finfo(np.float32).tiny)
"""Stands in for a range of 0, so that all shares are 0."""


def is_coarse(spec: QuantSpec) -> bool:
    """Whether the share of a channel matters: integers of few bits."""
    return spec.evenly_spaced and spec.bits < FEW_BITS


def read_as(plan: QuantPlan, tensor: str, node: str) -> QuantSpec | None:
    """The format in which a node reads a tensor at its first input; None for float, and for many bits."""
    if tensor not in plan:
        return None
    placement = plan[tensor]
    seen = placement.edges is None or (node, 0) in placement.edges
    return placement.spec if seen and is_coarse(placement.spec) else None


@dataclass(frozen=True)
class WeightShares:
    """A quantized weight; `makes` and `reads` say whether scales of its outputs and inputs change any share."""

    edit: Edit
    magnitudes: np.ndarray
    spec: QuantSpec
    size: Size = "max"

    @property
    def makes(self) -> bool:
        return self._matters(self.edit.down)

    @property
    def reads(self) -> bool:
        return self._matters(self.edit.up)

    def _matters(self, layout: Layout) -> bool:
        """A weight with one scale per channel follows what is scaled along that same axis."""
        granularity = self.spec.granularity
        if layout.size == 1:
            return False
        if not isinstance(granularity, PerChannel):
            return True
        axis = resolve_axis(granularity.axis, self.magnitudes.ndim)
        return any(length > 1 for position, length in enumerate(layout.shape) if position != axis)

    def raise_shares(self, target: np.ndarray, layout: Layout, scales: np.ndarray) -> None:
        """Raise the entries of `target`, one for each class, to the shares of the classes of `up` or `down`."""
        values = self.magnitudes * scales[self.edit.up].astype(np.float32)
        values /= scales[self.edit.down].astype(np.float32)
        if isinstance(self.spec.granularity, PerTensor):  # one number for all, so that it can be divided by at the end
            shares = _reduced(values, layout, self.size)
            shares /= max(float(shares.max()), TINY)
        else:
            values /= np.maximum(_largest(values, self.spec), TINY)
            shares = _reduced(values, layout, self.size)
        np.maximum.at(target, np.broadcast_to(layout, shares.shape).ravel(), shares.ravel())


def _largest(values: np.ndarray, spec: QuantSpec) -> np.ndarray:
    """The largest value among those that share a scale, for each value."""
    granularity = spec.granularity
    assert not isinstance(granularity, PerTensor)
    axis = resolve_axis(granularity.axis, values.ndim)
    if isinstance(granularity, PerChannel):
        others = tuple(position for position in range(values.ndim) if position != axis)
        return np.asarray(values.max(axis=others, keepdims=True))
    starts = np.arange(0, values.shape[axis], granularity.size)
    blocks = np.maximum.reduceat(values, starts, axis=axis)
    return blocks.take(np.arange(values.shape[axis]) // granularity.size, axis)


def weight_shares(graph: Graph, plan: QuantPlan, scalable: ScalableChannels, size: Size = "max") -> list[WeightShares]:
    """Every quantized weight that takes scales up."""
    found = []
    for edit in scalable.edits:
        if edit.constant not in plan or plan[edit.constant].role == "bias":
            continue
        spec = plan[edit.constant].spec
        if is_coarse(spec) and not plan[edit.constant].observe_only:
            magnitudes = np.abs(graph.values(edit.constant))
            found.append(WeightShares(edit, _without_kernel(magnitudes, edit, spec, size), spec, size))
    return found


def _without_kernel(magnitudes: np.ndarray, edit: Edit, spec: QuantSpec, size: Size) -> np.ndarray:
    """The magnitudes with one for all positions of a kernel, which nobody scales apart."""
    granularity = spec.granularity
    kept = set() if isinstance(granularity, PerTensor) else {resolve_axis(granularity.axis, magnitudes.ndim)}
    for layout in (edit.up, edit.down):
        extra = magnitudes.ndim - layout.ndim
        kept |= {axis + extra for axis, length in enumerate(layout.shape) if length > 1}
    over = tuple(axis for axis in range(magnitudes.ndim) if axis not in kept)
    return _one_of(magnitudes, over, size)


@dataclass(frozen=True)
class ActivationShares:
    """Tensors that have one scale together: the class and the largest magnitude of every channel."""

    classes: np.ndarray
    magnitudes: np.ndarray

    def raise_shares(self, target: np.ndarray, scales: np.ndarray) -> None:
        """Raise the entries of `target`, one for each class, to the shares of the classes."""
        values = self.magnitudes / scales[self.classes]
        np.maximum.at(target, self.classes, values / max(float(values.max(initial=0.0)), TINY))


def quantized_activations(plan: QuantPlan, scalable: ScalableChannels) -> dict[str, list[str]]:
    """Leader -> the tensors with its scale, where channels of one of them can be scaled."""
    free = scalable.free()
    found: dict[str, list[str]] = {}
    for placement in plan:
        layout = scalable.layouts.get(placement.tensor)
        if layout is None or placement.role not in ("activation", "output") or placement.observe_only:
            continue
        if is_coarse(placement.spec) and isinstance(placement.spec.granularity, PerTensor):
            found.setdefault(plan.leader(placement.tensor), []).append(placement.tensor)
    return {
        leader: names for leader, names in found.items() if any(free[scalable.layouts[name]].any() for name in names)
    }


def activation_shares(tied: dict[str, list[str]], ranges: dict[str, ChannelRanges]) -> list[ActivationShares]:
    """One entry for each scale of activations, as far as their channels are known."""
    found = []
    for names in tied.values():
        known = [ranges[name] for name in names if name in ranges]
        if known:
            classes = np.concatenate([item.classes for item in known])
            found.append(ActivationShares(classes, np.concatenate([item.magnitude for item in known])))
    return found


def largest_of_class(target: np.ndarray, layout: Layout, values: np.ndarray) -> None:
    """Raise the entries of `target`, one for each class, to the largest value of the class."""
    reduced = _reduced(values, layout)
    np.maximum.at(target, np.broadcast_to(layout, reduced.shape).ravel(), reduced.ravel())


def _reduced(values: np.ndarray, layout: Layout, size: Size = "max") -> np.ndarray:
    """The largest value, or the mean, over all axes along which a layout does not change."""
    extra = values.ndim - layout.ndim
    over = tuple(range(extra)) + tuple(axis + extra for axis, length in enumerate(layout.shape) if length == 1)
    return _one_of(values, over, size)


def _one_of(values: np.ndarray, over: tuple[int, ...], size: Size) -> np.ndarray:
    return np.asarray(values.mean(axis=over, keepdims=True) if size == "mean" else values.max(axis=over, keepdims=True))
