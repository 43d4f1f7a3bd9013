"""HistogramStatistic: how often each magnitude occurred, without choosing a range beforehand.

A bin is the upper half of a float32: sign, 8 exponent bits and 7 mantissa bits. Bins are therefore 2^-7 (0.8 %) of
their power of two wide, from the smallest number to the largest, and no value seen later can make an old bin too wide
or too narrow: counts only ever add up, which is why batch size, order and sharding cannot change a single bit.
Zero (with the numbers below 2^-133, which no scale can tell from it) has a bin of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from onnxq.errors import SpecError
from onnxq.observers.statistics.counting import (
    NEGATIVE_PAGE,
    PAGE,
    PAGES,
    PATTERNS,
    Counts,
    add_counts,
    count_by_row,
    count_patterns,
    counts_from_keys,
)
from onnxq.observers.statistics.range import Extent, RangeStatistic, StatisticKind, stored
from onnxq.observers.statistics.scan import as_float32, pieces
from onnxq.types.granularity import resolve_axis

_FIRST_NONFINITE = 0x7F80
_ROWS_AT_ONCE = 64

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
        split = int(np.searchsorted(self.code, 0))
        code, lower, upper, count = (part[split:] for part in (self.code, self.lower, self.upper, self.count))
        if split == 0:
            return self
        if positive_only:
            negative = int(self.count[:split].sum())
            if len(code) and code[0] == 0:
                return Bins(code, lower, upper, np.concatenate([[count[0] + negative], count[1:]]))
            zero = np.zeros(1)
            return Bins(
                *(
                    np.concatenate([a, b])
                    for a, b in (
                        (zero.astype(np.int64), code),
                        (zero, lower),
                        (zero, upper),
                        (np.array([negative]), count),
                    )
                )
            )
        mirrored = -self.code[:split][::-1]
        codes = np.union1d(code, mirrored)
        total = np.zeros(len(codes), np.int64)
        low, high = np.full(len(codes), np.inf), np.full(len(codes), -np.inf)
        for place, near, far, counted in (
            (np.searchsorted(codes, code), lower, upper, count),
            (
                np.searchsorted(codes, mirrored),
                -self.upper[:split][::-1],
                -self.lower[:split][::-1],
                self.count[:split][::-1],
            ),
        ):
            total[place] += counted
            low[place] = np.minimum(low[place], near)
            high[place] = np.maximum(high[place], far)
        return Bins(codes, low, high, total)


class HistogramStatistic(RangeStatistic):
    """Counts over the upper 16 bits of float32, plus everything RangeStatistic has (see the module's first lines).

    Only occupied pages (sign and exponent) are kept: some dozens per row, whatever the number of samples.
    """

    kind: ClassVar[StatisticKind] = "histogram"

    def __init__(self, axis: int | None = None) -> None:
        super().__init__(axis)
        self._pages = np.zeros(0, np.int64)
        self._table = np.zeros((0, PAGE), np.int64)
        self._bins: Bins | None = None

    def look(self, array: np.ndarray, sample: int = 0, *, batch: int = 1) -> Any:
        values = np.asarray(array)
        if values.size == 0:
            return None
        return self._extent(values, sample, batch), self.counted(values)

    def add(self, partial: tuple[Extent, list[Counts]]) -> None:
        extent, counts = partial
        self.add_extent(extent)
        self.add_counted(counts)

    def add_extent(self, seen: Extent) -> None:
        self._bins = None
        super().add_extent(seen)

    def add_counted(self, counts: list[Counts]) -> None:
        """Take in one half of what `look` finds; the other half is for `add_extent`."""
        self._bins = None
        for more in counts:
            self._pages, self._table = add_counts((self._pages, self._table), more)

    def counted(self, values: np.ndarray) -> list[Counts]:
        """How often each pattern occurs in an array; like `look`, this changes nothing."""
        if self.axis is None:
            if values.dtype == np.float32 and values.flags.c_contiguous and values.flags.aligned:
                return [count_patterns(values.reshape(-1))]
            return [count_patterns(_in_order(as_float32(values[index])).reshape(-1)) for index in pieces(values.shape)]
        axis = resolve_axis(self.axis, values.ndim)
        found = []
        for index in pieces(values.shape):
            piece = as_float32(values[index])
            by_row = np.moveaxis(piece, axis, 0).reshape(piece.shape[axis], -1)
            for start in range(0, len(by_row), _ROWS_AT_ONCE):
                part = _in_order(by_row[start : start + _ROWS_AT_ONCE])
                pages, table = count_by_row(part)
                found.append((pages + (index[axis].start + start) * PAGES, table))
        return found

    def merge(self, other: Self) -> None:
        super().merge(other)
        self._bins = None
        self._pages, self._table = add_counts((self._pages, self._table), (other._pages, other._table))

    def bins(self, row: int = 0) -> Bins:
        """The occupied bins of one row; a row is a channel, or 0 for the whole tensor.

        Those of a whole tensor are kept until it has more values: several observers look at them.
        """
        if self.axis is None and self._bins is not None:
            return self._bins
        found = self._occupied_bins(row)
        if self.axis is None:
            self._bins = found
        return found

    def _occupied_bins(self, row: int) -> Bins:
        first = row * PAGES
        start, middle, stop = np.searchsorted(self._pages, [first, first + NEGATIVE_PAGE, first + PAGES])
        near, negative = _occupied(self._pages[middle:stop] - first - NEGATIVE_PAGE, self._table[middle:stop])
        code, positive = _occupied(self._pages[start:middle] - first, self._table[start:middle])
        low, high = float(self.minimum[row]), float(self.maximum[row])
        lower = np.concatenate([-_EDGES[near[::-1] + 1], _EDGES[code]])
        upper = np.concatenate([-_EDGES[near[::-1]], np.where(code == 0, 0.0, _EDGES[code + 1])])
        return Bins(
            np.concatenate([-near[::-1], code]),
            np.clip(lower, low, high),
            np.clip(upper, low, high),
            np.concatenate([negative[::-1], positive]),
        )

    def to_arrays(self) -> dict[str, np.ndarray]:
        keys, counts = _occupied(self._pages, self._table)
        return {**super().to_arrays(), "keys": keys, "counts": counts}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        statistic = super().from_arrays(arrays)
        keys = stored(arrays, "keys", np.int64, (None,))
        counts = stored(arrays, "counts", np.int64, keys.shape)
        if len(keys) and (keys[0] < 0 or keys[-1] >= statistic.rows * PATTERNS or (np.diff(keys) <= 0).any()):
            raise SpecError("'keys' are not the numbers of bins, ascending and each once")
        statistic._pages, statistic._table = counts_from_keys(keys, counts)
        return statistic


def _in_order(values: np.ndarray) -> np.ndarray:
    """The values one behind the other, at addresses that suit their type."""
    return np.require(values, requirements=["C", "A"])


def _occupied(pages: np.ndarray, table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Patterns with a count above zero, ascending, and the counts."""
    page, inside = np.nonzero(table)
    return pages[page] * PAGE + inside, table[page, inside]
