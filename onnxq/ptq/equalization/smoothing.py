"""The error that layers make with smoothed inputs, for any alpha: what SmoothQuant searches by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxq.graph import Graph
from onnxq.numerics import fake_quantize, qparams_from_range
from onnxq.observers import make_observer, observe_constant
from onnxq.ptq.equalization.channel_statistics import ChannelRanges
from onnxq.ptq.equalization.flow import Edit
from onnxq.ptq.equalization.precision import WeightShares, largest_of_class
from onnxq.ptq.equalization.scalable_channels import LARGEST_SCALE
from onnxq.types import QParams, QuantSpec

FINER = 0.1
"""What is tried on both sides of the best."""

MOST_OUTPUTS = 256
"""Outputs of a layer that are computed to measure its error; each position of a kernel counts."""

WORTH_WHILE = 0.98
"""Errors have to fall below this part of what they were."""


@dataclass(frozen=True)
class Reader:
    """A layer that reads a tensor quantized; `spec` is the tensor's format, `weight` that of the constant, if any."""

    edit: Edit
    tensor: str
    axis: int
    spec: QuantSpec
    weight: QuantSpec | None
    groups: int


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
        self._weights: dict[str, np.ndarray] = {}
        self._expected: dict[str, np.ndarray] = {}
        self._weight = np.zeros(classes)
        for reader in readers:
            weight = graph.values(reader.edit.constant)
            largest_of_class(self._weight, reader.edit.up, np.abs(weight))
            self._weights[reader.edit.constant] = _some_outputs(weight, reader)
            part = self._weights[reader.edit.constant]
            self._expected[reader.edit.constant] = products(rows[reader.tensor], part, reader.edit, reader.groups)

    def scales(self, alpha: float, ranges: dict[str, ChannelRanges]) -> np.ndarray:
        """Scales around 1 for every class; those outside of the group are 1."""
        scales, activation = np.ones(len(self._weight)), np.zeros(len(self._weight))
        for reader in self._readers:
            largest_of_class(activation, ranges[reader.tensor].classes, ranges[reader.tensor].magnitude)
        alive = self._group[(activation[self._group] > 0) & (self._weight[self._group] > 0)]
        if len(alive):
            logarithms = alpha * np.log(activation[alive]) - (1 - alpha) * np.log(self._weight[alive])
            scales[alive] = np.clip(np.exp(logarithms - logarithms.mean()), 1 / LARGEST_SCALE, LARGEST_SCALE)
        return scales

    def best(self, alphas: tuple[float, ...]) -> tuple[float, float, float] | None:
        """The alpha with the smallest error, the error without it and with it; None if none is worth while."""
        before = self._error(np.ones(len(self._weight)))
        errors = {alpha: self._error(self.scales(alpha, self._ranges)) for alpha in alphas}
        alpha = min(errors, key=lambda item: errors[item])
        if len(alphas) > 1:
            for near in (round(alpha - FINER, 2), round(alpha + FINER, 2)):
                errors[near] = self._error(self.scales(near, self._ranges))
            alpha = min(errors, key=lambda item: errors[item])
        if len(alphas) > 1 and errors[alpha] >= WORTH_WHILE * before:
            return None
        return alpha, before, errors[alpha]

    def _error(self, scales: np.ndarray) -> float:
        """The mean over the layers of squared error / squared output."""
        made = self._made(scales)
        return float(np.mean([self._error_of(reader, scales, made) for reader in self._readers]))

    def _made(self, scales: np.ndarray) -> np.ndarray:
        """By which factor the values of each class are wrong because gamma, or another constant, is quantized.

        A class that several values of a constant belong to (a bias [M, N]) has the factor that fits them best.
        """
        factors = np.ones(len(scales))
        for item, values in self._makers:
            own = (values / scales[item.edit.down]).astype(np.float32)
            stored = fake_quantize(own, observe_constant(own, make_observer("minmax"), item.spec))
            classes = np.broadcast_to(item.edit.down, own.shape).ravel()
            products, squares = (
                np.bincount(classes, (values * own.astype(np.float64)).ravel(), len(scales)) for values in (stored, own)
            )
            np.divide(products, squares, out=factors, where=squares > 0)
        return factors

    def _error_of(self, reader: Reader, scales: np.ndarray, made: np.ndarray) -> float:
        seen, rows = self._ranges[reader.tensor], self._rows[reader.tensor]
        own = (rows * (made / scales)[seen.classes]).astype(np.float32)
        quantized = fake_quantize(own, _qparams(seen, scales, reader.spec))
        weight = self._weights[reader.edit.constant]
        changed = (weight * scales[reader.edit.up]).astype(np.float32)
        if reader.weight is not None:
            changed = fake_quantize(changed, observe_constant(changed, make_observer("minmax"), reader.weight))
        expected = self._expected[reader.edit.constant]
        found = products(quantized, changed, reader.edit, reader.groups)
        noise = sum(float(_qparams(other, scales, spec).scale) ** 2 / 12 for spec, other in self._beside)
        error = _energy(found - expected) + noise * len(rows) * _energy(changed)
        energy = _energy(expected)
        return error / energy if energy else 0.0


def _energy(values: np.ndarray) -> float:
    flat = values.ravel()
    return float(flat @ flat)


def _qparams(seen: ChannelRanges, scales: np.ndarray, spec: QuantSpec) -> QParams:
    """The parameters of a tensor whose channels are scaled, from the smallest to the largest value."""
    own = scales[seen.classes]
    return qparams_from_range(float((seen.low / own).min()), float((seen.high / own).max()), spec)


def _some_outputs(weight: np.ndarray, reader: Reader) -> np.ndarray:
    """A weight with a part of its output channels, taken evenly; those of groups are all kept."""
    if reader.groups > 1:
        return weight
    axis = 0 if reader.edit.up.shape[0] == 1 else 1
    outputs = weight.size // reader.edit.up.size
    every = min(-(-outputs // MOST_OUTPUTS), weight.shape[axis])
    return weight[::every] if axis == 0 else weight[:, ::every]


def products(rows: np.ndarray, weight: np.ndarray, edit: Edit, groups: int) -> np.ndarray:
    """What a layer makes of rows; a convolution with the products of each position of its kernel side by side."""
    if edit.op == "Gemm" and edit.up.shape[0] == 1:
        weight = weight.T
    elif edit.op == "Conv":  # [out, in / group, k...] -> [group, in / group, out / group * k...]
        split = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], -1)
        weight = split.transpose(0, 2, 1, 3)
    inputs = rows.shape[1] // groups
    if groups == 1:
        return np.asarray(rows @ weight.reshape(inputs, -1))
    apart = rows.reshape(len(rows), groups, inputs).transpose(1, 0, 2)
    return np.asarray(np.matmul(apart, weight.reshape(groups, inputs, -1)))
