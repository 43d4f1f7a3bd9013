"""RangeStatistic: smallest and largest finite value, and what was not finite; the base of the other statistics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal, Self

import numpy as np

from onnxq.errors import DataError, SpecError, UnsupportedError
from onnxq.observers.statistics.scan import as_float32, other_axes, pieces
from onnxq.types.granularity import resolve_axis

StatisticKind = Literal["range", "histogram", "ema"]


class RangeStatistic:
    """Exact minimum and maximum of the finite values, per tensor (`axis=None`) or per index along `axis`.

    Arrays have one entry per row: a row is the whole tensor or one channel. NaN and infinities are counted, the first
    sample that held one is remembered, and the values themselves are left out. A mask value such as -3.4e38 is finite
    and widens the range. The result does not depend on batch size, order or sharding; -0.0 counts as 0.0.
    """

    kind: ClassVar[StatisticKind] = "range"

    def __init__(self, axis: int | None = None) -> None:
        self.axis = axis
        self.minimum = np.zeros(0, np.float32)
        self.maximum = np.zeros(0, np.float32)
        self.count = np.zeros(0, np.int64)
        self.nonfinite = 0
        self.first_nonfinite: int | None = None

    @property
    def rows(self) -> int:
        """1 for a per-tensor statistic, the number of channels otherwise; 0 before the first value."""
        return len(self.count)

    def update(self, array: np.ndarray, sample: int = 0, *, batch: int = 1) -> None:
        """Take in the values of `array`, which belongs to the samples `sample` .. `sample + batch - 1`.

        With a batch above 1, axis 0 tells the samples apart where it has that length and is not the channel axis.
        """
        values = np.asarray(array)
        if values.size == 0:
            return
        axis = None if self.axis is None else resolve_axis(self.axis, values.ndim)
        self._grow(1 if axis is None else values.shape[axis])
        per_row = batch > 1 and values.ndim > 0 and axis != 0 and values.shape[0] == batch
        for index in pieces(values.shape):
            piece = as_float32(values[index])
            rows = slice(0, 1) if axis is None else index[axis]
            self._add(piece, rows, axis, sample + index[0].start if per_row else sample, per_row)

    def _add(self, piece: np.ndarray, rows: slice, axis: int | None, sample: int, per_row: bool) -> None:
        over = other_axes(piece.ndim, axis)
        with np.errstate(invalid="ignore"):
            low, high = np.atleast_1d(piece.min(axis=over)), np.atleast_1d(piece.max(axis=over))
        count: np.ndarray | int = piece.size // len(low)
        # NaN and infinities always show in the minimum or the maximum, so clean data needs no pass of its own for them.
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            finite = np.isfinite(piece)
            low = np.atleast_1d(np.min(piece, axis=over, where=finite, initial=np.inf))
            high = np.atleast_1d(np.max(piece, axis=over, where=finite, initial=-np.inf))
            count = np.atleast_1d(finite.sum(axis=over, dtype=np.int64))
            bad_rows = np.flatnonzero(~finite.all(axis=tuple(range(1, piece.ndim)))) if per_row else np.zeros(1, int)
            self._note_nonfinite(piece.size - int(finite.sum()), sample + int(bad_rows[0]))
        self.minimum[rows] = np.minimum(self.minimum[rows], low) + np.float32(0.0)
        self.maximum[rows] = np.maximum(self.maximum[rows], high) + np.float32(0.0)
        self.count[rows] += count

    def _note_nonfinite(self, count: int, sample: int) -> None:
        self.nonfinite += count
        if self.first_nonfinite is None or sample < self.first_nonfinite:
            self.first_nonfinite = sample

    def _grow(self, rows: int) -> None:
        if self.rows == 0:
            self.minimum = np.full(rows, np.inf, np.float32)
            self.maximum = np.full(rows, -np.inf, np.float32)
            self.count = np.zeros(rows, np.int64)
        elif rows != self.rows:
            raise DataError(
                f"axis {self.axis} had {self.rows} channels before and has {rows} now: a per-channel range needs a "
                "channel axis of fixed length; quantize this tensor per tensor"
            )

    def merge(self, other: Self) -> None:
        """Take in everything `other` has seen; the order of merges does not matter."""
        if type(other) is not type(self) or other.axis != self.axis:
            raise UnsupportedError(
                f"cannot merge a {other.kind} statistic of axis {other.axis} into a {self.kind} statistic of axis "
                f"{self.axis}: collect every shard with the same settings"
            )
        self._absorb(other)

    def _absorb(self, other: RangeStatistic) -> None:
        if other.rows:
            self._grow(other.rows)
            self.minimum = np.minimum(self.minimum, other.minimum)
            self.maximum = np.maximum(self.maximum, other.maximum)
            self.count = self.count + other.count
        if other.first_nonfinite is not None:
            self._note_nonfinite(other.nonfinite, other.first_nonfinite)

    def check(self, tensor: str = "") -> None:
        """Raise when there is nothing to take a range from, and say what to do."""
        where = f" of tensor '{tensor}'" if tensor else ""
        if self.rows and (self.count > 0).all():
            return
        if self.nonfinite:
            part = "" if self.axis is None else f" in channel {int(np.argmin(self.count))} of axis {self.axis}"
            raise DataError(
                f"all values{where}{part} are NaN or infinite, first in sample {self.first_nonfinite}: there is no "
                "range to take. Check that sample and the float model's outputs on it, or leave this tensor float"
            )
        raise DataError(
            f"no values{where} were seen: there is no range to take. Give at least one calibration sample that "
            "reaches this tensor, or leave it float"
        )

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Everything needed to go on later, as arrays that npz files can hold."""
        return {
            "kind": np.array(self.kind),
            "axis": np.array([] if self.axis is None else [self.axis], np.int64),
            "minimum": self.minimum,
            "maximum": self.maximum,
            "count": self.count,
            "nonfinite": np.array(self.nonfinite, np.int64),
            "first_nonfinite": np.array(-1 if self.first_nonfinite is None else self.first_nonfinite, np.int64),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        if str(arrays["kind"]) != cls.kind:
            raise SpecError(f"these arrays hold a {arrays['kind']} statistic, not a {cls.kind} statistic")
        statistic = cls(int(arrays["axis"][0]) if len(arrays["axis"]) else None)
        statistic.minimum = np.array(arrays["minimum"], np.float32)
        statistic.maximum = np.array(arrays["maximum"], np.float32)
        statistic.count = np.array(arrays["count"], np.int64)
        statistic.nonfinite = int(arrays["nonfinite"])
        first = int(arrays["first_nonfinite"])
        statistic.first_nonfinite = None if first < 0 else first
        return statistic
