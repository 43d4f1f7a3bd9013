"""HistogramStatistic: how often each magnitude occurred, without choosing a range beforehand.

A bin is the upper half of a float32: sign, 8 exponent bits and 7 mantissa bits. Bins are therefore 2^-7 (0.8 %) of
their power of two wide, from the smallest number to the largest, and no value seen later can make an old bin too wide
or too narrow: counts only ever add up, which is why batch size, order and sharding cannot change a single bit.
Zero (with the numbers below 2^-133, which no scale can tell from it) has a bin of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from onnxq.observers.statistics.range import RangeStatistic, StatisticKind

_PATTERNS = 1 << 16
_SIGN = 1 << 15
_FIRST_NONFINITE = 0x7F80
_DENSE_BINS = 1 << 22

_EDGES = np.concatenate(
    [(np.arange(_FIRST_NONFINITE, dtype=np.uint32) << 16).view(np.float32).astype(np.float64), [2.0**128]]
)
"""Lower edge of every bin of positive numbers, and the end of the last one."""


@dataclass(frozen=True)
class Bins:
    """The occupied bins of one row in ascending order; the outer edges are the exact minimum and maximum.

    code    the number of the bin: the float32 pattern of |x| without its lower half, negated for negative values
    lower   edges in float64; equal to `upper` for zero, which has no width
    """

    code: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    count: np.ndarray

    @property
    def middle(self) -> np.ndarray:
        """The value that stands for a bin without bias."""
        return np.asarray(0.5 * (self.lower + self.upper))

    def magnitudes(self, *, positive_only: bool = False) -> Bins:
        """The bins of |x|, x and -x counted together; `positive_only` counts negative values as zero instead."""
        negative = self.code < 0
        if positive_only:
            code, lower, upper = (np.where(negative, 0, part) for part in (self.code, self.lower, self.upper))
        else:
            code = np.abs(self.code)
            lower = np.where(negative, -self.upper, self.lower)
            upper = np.where(negative, -self.lower, self.upper)
        codes, inverse = np.unique(code, return_inverse=True)
        count = np.zeros(len(codes), np.int64)
        np.add.at(count, inverse, self.count)
        low, high = np.full(len(codes), np.inf), np.full(len(codes), -np.inf)
        np.minimum.at(low, inverse, lower)
        np.maximum.at(high, inverse, upper)
        return Bins(codes, low, high, count)


class HistogramStatistic(RangeStatistic):
    """Counts over the upper 16 bits of float32, plus everything RangeStatistic has (see the module's first lines).

    Only occupied bins are kept: a few thousand per row, whatever the number of samples.
    """

    kind: ClassVar[StatisticKind] = "histogram"

    def __init__(self, axis: int | None = None) -> None:
        super().__init__(axis)
        self.keys = np.zeros(0, np.int64)
        self.counts = np.zeros(0, np.int64)

    def _add(self, piece: np.ndarray, rows: slice, axis: int | None, sample: int, per_row: bool) -> None:
        super()._add(piece, rows, axis, sample, per_row)
        by_row = piece.reshape(1, -1) if axis is None else np.moveaxis(piece, axis, 0).reshape(piece.shape[axis], -1)
        group = max(1, _DENSE_BINS // _PATTERNS)
        for start in range(0, len(by_row), group):
            part = np.ascontiguousarray(by_row[start : start + group])
            keys, counts = _count_patterns(part)
            self._accumulate(keys + (rows.start + start) * _PATTERNS, counts)

    def _accumulate(self, keys: np.ndarray, counts: np.ndarray) -> None:
        """Add counts under keys = row * 65536 + pattern; keys may repeat."""
        if len(self.keys):
            place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
            if np.array_equal(self.keys[place], keys):
                np.add.at(self.counts, place, counts)
                return
        merged, inverse = np.unique(np.concatenate([self.keys, keys]), return_inverse=True)
        total = np.zeros(len(merged), np.int64)
        np.add.at(total, inverse, np.concatenate([self.counts, counts]))
        self.keys, self.counts = merged, total

    def merge(self, other: Self) -> None:
        super().merge(other)
        self._accumulate(other.keys, other.counts)

    def bins(self, row: int = 0) -> Bins:
        """The occupied bins of one row; a row is a channel, or 0 for the whole tensor."""
        start, stop = np.searchsorted(self.keys, [row * _PATTERNS, (row + 1) * _PATTERNS])
        pattern, count = self.keys[start:stop] - row * _PATTERNS, self.counts[start:stop]
        code = np.where(pattern >= _SIGN, _SIGN - pattern, pattern)
        order = np.argsort(code)
        code, count = code[order], count[order]
        near = _EDGES[np.abs(code)]
        far = np.where(code == 0, 0.0, _EDGES[np.abs(code) + 1])
        low, high = float(self.minimum[row]), float(self.maximum[row])
        lower = np.clip(np.where(code < 0, -far, near), low, high)
        upper = np.clip(np.where(code < 0, -near, far), low, high)
        return Bins(code, lower, upper, count)

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {**super().to_arrays(), "keys": self.keys, "counts": self.counts}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        statistic = super().from_arrays(arrays)
        statistic.keys = np.array(arrays["keys"], np.int64)
        statistic.counts = np.array(arrays["counts"], np.int64)
        return statistic


def _count_patterns(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Occupied keys (row * 65536 + upper half of the float32) of a contiguous (rows, n) array, and their counts."""
    patterns = (values.view(np.uint32) >> 16).astype(np.int64)
    if len(values) > 1:
        patterns += np.arange(len(values), dtype=np.int64)[:, None] * _PATTERNS
    size = len(values) * _PATTERNS
    if values.size * 8 < size:
        keys, counts = np.unique(patterns, return_counts=True)
    else:
        dense = np.bincount(patterns.ravel(), minlength=size)
        keys = np.flatnonzero(dense)
        counts = dense[keys]
    keep = keys & (_SIGN - 1) < _FIRST_NONFINITE
    keys, counts = keys[keep], counts[keep]
    minus_zero = keys & (_PATTERNS - 1) == _SIGN
    return np.where(minus_zero, keys - _SIGN, keys).astype(np.int64), counts.astype(np.int64)
