"""The expected squared error of number formats on histograms, for many scales at once.

A grid goes up in steps: at the boundary b its level rises by h, from m - h/2 to m + h/2. A value x that is above
the boundaries b_1 .. b_k of its side of zero is on the level q = h_1 + .. + h_k, and then, exactly,

    (x - q)^2 = x^2 - sum over i of 2 h_i (x - m_i)

so the error of all values is their sum of squares less one gain for each boundary,

    gain(b) = 2 h (excess(b) + (b - m) count(b))

which costs a table lookup and not a pass over the values. Rounding to the nearest has b = m; rounding down, and
rounding the logarithm, have not.

Formats of very many levels: beyond the first hundred, a bin is as wide as a step or wider, and the sum over boundaries
is its integral with the first term of Euler and Maclaurin, which is the well-known step^2 / 12 for each value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from onnxq.observers.excess import Excess
from onnxq.observers.statistics import Bins
from onnxq.types.number_format import Side
from onnxq.types.spec import QuantSpec

MOST_STEPS = 1024
"""Formats with more steps than this are summed step by step near zero only."""
STEPS_NEAR_ZERO = 128
WIDE_SPLITS = 256


@dataclass(frozen=True)
class Steps:
    """The boundaries of one side of zero, in units of the scale, from zero outwards; `lag` is b - m of each.

    Of very many even steps only the first, near zero, are listed; `count` is how many there are.
    """

    boundary: np.ndarray
    height: np.ndarray
    lag: np.ndarray
    count: int


class ExpectedError:
    """Errors of one format on many rows of values."""

    def __init__(self, rows: Sequence[Bins], spec: QuantSpec) -> None:
        self._above, self._below = Excess(rows, 1), Excess(rows, -1)
        self._symmetric = spec.symmetric
        self._up, self._down = format_steps(spec)
        # Numbers of steps for the values above zero; the others are for those below.
        self._splits = _splits(self._up.count) if not spec.symmetric else np.zeros(0, np.int64)

    def of(self, scale: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sum of squared errors for scales of shape (len(rows), candidates), and how many steps are below zero.

        An asymmetric format has each scale with its best zero point; `rows` says whose scales these are.
        """
        squares = (self._above.total_squares + self._below.total_squares)[rows, None]
        if self._symmetric:
            gain = _gains(self._above, scale, rows, self._up, None) + _gains(self._below, scale, rows, self._down, None)
            return squares - gain[..., 0], np.full(scale.shape, self._down.count)
        steps = int(self._splits[-1])
        gain = _gains(self._above, scale, rows, self._up, self._splits)
        gain = gain + _gains(self._below, scale, rows, self._down, (steps - self._splits)[::-1])[..., ::-1]
        best = np.argmax(gain, axis=-1)
        return squares - np.take_along_axis(gain, best[..., None], axis=-1)[..., 0], steps - self._splits[best]


@cache
def format_steps(spec: QuantSpec) -> tuple[Steps, Steps]:
    """Steps above and below zero; both have all of them for an asymmetric format, whose zero point divides them."""
    if not spec.evenly_spaced:
        above, below = (_steps(side) for side in spec.format.sides(spec))
        return above, below
    up, down = (spec.qmax, -spec.qmin) if spec.symmetric else (spec.qmax - spec.qmin,) * 2
    lag = 0.5 if spec.rounding == "floor" else 0.0
    return _even_steps(up, lag), _even_steps(down, -lag)


def _even_steps(count: int, lag: float) -> Steps:
    near = count if count <= MOST_STEPS else STEPS_NEAR_ZERO
    return Steps(np.arange(near) + 0.5 + lag, np.ones(near), np.full(near, lag), count)


def _steps(side: Side) -> Steps:
    """Steps of uneven height; a boundary in the middle of two levels has no lag."""
    height = np.diff(side.levels, prepend=0.0)
    return Steps(side.boundaries, height, side.boundaries - (side.levels - 0.5 * height), len(side.levels))


def _splits(steps: int) -> np.ndarray:
    """Numbers of steps from 0 to all: every one, or evenly chosen ones of very many."""
    return np.arange(steps + 1) if steps <= MOST_STEPS else np.arange(WIDE_SPLITS + 1) * steps // WIDE_SPLITS


def _gains(values: Excess, scale: np.ndarray, rows: np.ndarray, steps: Steps, counts: np.ndarray | None) -> np.ndarray:
    """Gains of the first `counts` steps (None: of all), as a last axis after that of the scales."""
    if values.empty:
        return np.zeros((*scale.shape, 1 if counts is None else len(counts)))
    near = len(steps.boundary)
    lag, whole = bool(steps.lag.any()), counts is not None and near == steps.count
    each = None if lag else values.steps_in_c(scale, rows, steps.boundary, steps.height, together=whole)
    if whole and each is not None:
        return each
    if each is None:
        each = values.excess(scale[..., None] * steps.boundary, rows)
        if lag:
            each += (steps.lag * scale[..., None]) * values.count(scale[..., None] * steps.boundary, rows)
        each *= steps.height
    if counts is None:
        gain = each.sum(axis=-1, keepdims=True)
        counts = np.array([steps.count])
    else:
        gain = np.concatenate([np.zeros((*scale.shape, 1)), np.cumsum(each, axis=-1)], axis=-1)
        gain = gain.take(np.minimum(counts, near), axis=-1) if near < steps.count else gain
    gain *= 2.0 * scale[..., None]
    if near < steps.count:
        gain += _far_gains(values, scale, rows, float(steps.lag[-1]), near, counts)
    return np.asarray(gain)


def _far_gains(
    values: Excess, scale: np.ndarray, rows: np.ndarray, lag: float, near: int, counts: np.ndarray
) -> np.ndarray:
    """Gains of the steps from `near` to each of `counts` of evenly spaced ones, by integration."""
    step = scale[..., None]
    ends = step * (np.maximum(counts, near) + lag)
    start = step * (near + lag)
    gain = values.squares(start, rows) - values.squares(ends, rows)
    gain += step**2 / 12.0 * (values.count(ends, rows) - values.count(start, rows))
    if lag:
        gain += 2.0 * lag * step * (values.excess(start, rows) - values.excess(ends, rows))
    return np.asarray(gain)
