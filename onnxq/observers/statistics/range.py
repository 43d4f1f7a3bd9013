"""RangeStatistic: smallest and largest finite value, and what was not finite; the base of the other statistics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np

from onnxq.errors import DataError, SpecError, UnsupportedError
from onnxq.observers.statistics.scan import as_float32, other_axes, pieces
from onnxq.types.granularity import resolve_axis

StatisticKind = Literal["range", "histogram", "ema", "votes"]
"""What an observer needs to see of a tensor."""


@dataclass(slots=True)
class Extent:
    """What one look at an array found: one entry per row (the whole tensor, or a channel).

    peaks   the largest magnitude of each sample that was looked at, with the number of the sample
    """

    low: np.ndarray
    high: np.ndarray
    count: np.ndarray
    nonfinite: int = 0
    first_nonfinite: int = -1
    peaks: tuple[tuple[float, int], ...] = ()


class RangeStatistic:
    """Exact minimum and maximum of the finite values, per tensor (`axis=None`) or per index along `axis`.

    Arrays have one entry per row: a row is the whole tensor or one channel. NaN and infinities are counted, the first
    sample that held one is remembered, and the values themselves are left out. A mask value such as -3.4e38 is finite
    and widens the range. The result does not depend on batch size, order or sharding; -0.0 counts as 0.0.

    `samples` counts the samples that went by, for whoever goes on later; the engine that runs the model counts them.
    `peaks` holds the largest and the second largest magnitude that any sample had, (magnitude, sample): a range that a
    single sample sets shows in them.
    """

    kind: ClassVar[StatisticKind] = "range"
    ordered: ClassVar[bool] = False
    """Whether `add` must be called in the order of the samples."""

    def __init__(self, axis: int | None = None) -> None:
        self.axis = axis
        self.samples = 0
        self.minimum = np.zeros(0, np.float32)
        self.maximum = np.zeros(0, np.float32)
        self.count = np.zeros(0, np.int64)
        self.nonfinite = 0
        self.first_nonfinite: int | None = None
        self.peaks: tuple[tuple[float, int], ...] = ()

    @property
    def rows(self) -> int:
        """1 for a per-tensor statistic, the number of channels otherwise; 0 before the first value."""
        return len(self.count)

    def update(self, array: np.ndarray, sample: int = 0, *, batch: int = 1) -> None:
        """Take in the values of `array`, which belongs to the samples `sample` .. `sample + batch - 1`.

        With a batch above 1, axis 0 tells the samples apart where it has that length and is not the channel axis.
        """
        partial = self.look(array, sample, batch=batch)
        if partial is not None:
            self.add(partial)

    def look(self, array: np.ndarray, sample: int = 0, *, batch: int = 1) -> Any:
        """What `update` would take in, for `add`; None for an array without values.

        This is the work, and it changes nothing: several threads may look at the same time, while calls of `add` must
        follow one another.
        """
        values = np.asarray(array)
        return None if values.size == 0 else self._extent(values, sample, batch)

    def add(self, partial: Any) -> None:
        """Take in what `look` found."""
        self.add_extent(partial)

    def _extent(self, values: np.ndarray, sample: int, batch: int) -> Extent:
        axis = None if self.axis is None else resolve_axis(self.axis, values.ndim)
        if batch > 1 and axis != 0 and values.ndim > 0 and values.shape[0] == batch:
            # Sample by sample, because a peak belongs to a sample.
            parts = [_extent_of(values[i : i + 1], axis, sample + i) for i in range(batch)]
            whole = parts[0]
            for part in parts[1:]:
                _unite(whole, part)
            return whole
        return _extent_of(values, axis, sample)

    def add_extent(self, seen: Extent) -> None:
        """Take in minimum, maximum and what else belongs to them."""
        self._grow(len(seen.count))
        np.minimum(self.minimum, seen.low, out=self.minimum)
        np.maximum(self.maximum, seen.high, out=self.maximum)
        self.count += seen.count
        if len(self.peaks) < 2 or any(peak[0] >= self.peaks[1][0] for peak in seen.peaks):
            self.peaks = two_largest(self.peaks + seen.peaks)
        if seen.nonfinite:
            self._note_nonfinite(seen.nonfinite, seen.first_nonfinite)

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
        self.samples += other.samples
        self.peaks = two_largest(self.peaks + other.peaks)
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
            "samples": np.array(self.samples, np.int64),
            "minimum": self.minimum,
            "maximum": self.maximum,
            "count": self.count,
            "nonfinite": np.array(self.nonfinite, np.int64),
            "first_nonfinite": np.array(-1 if self.first_nonfinite is None else self.first_nonfinite, np.int64),
            "peak": np.array([magnitude for magnitude, _ in self.peaks], np.float64),
            "peak_sample": np.array([sample for _, sample in self.peaks], np.int64),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        if str(arrays["kind"]) != cls.kind:
            raise SpecError(f"these arrays hold a {arrays['kind']} statistic, not a {cls.kind} statistic")
        axis = stored(arrays, "axis", np.int64, (None,))
        statistic = cls(int(axis[0]) if len(axis) else None)
        statistic.samples = int(stored(arrays, "samples", np.int64, ()))
        statistic.minimum = stored(arrays, "minimum", np.float32, (None,))
        rows = len(statistic.minimum)
        statistic.maximum = stored(arrays, "maximum", np.float32, (rows,))
        statistic.count = stored(arrays, "count", np.int64, (rows,))
        statistic.nonfinite = int(stored(arrays, "nonfinite", np.int64, ()))
        first = int(stored(arrays, "first_nonfinite", np.int64, ()))
        statistic.first_nonfinite = None if first < 0 else first
        peaks = stored(arrays, "peak", np.float64, (None,))
        samples = stored(arrays, "peak_sample", np.int64, peaks.shape)
        statistic.peaks = tuple(zip(peaks.tolist(), samples.tolist(), strict=True))
        return statistic


def stored(
    arrays: Mapping[str, np.ndarray], name: str, dtype: type[np.generic], shape: tuple[int | None, ...]
) -> np.ndarray:
    """A copy of an array of a file, which must have the type and shape (None: any length) it is written with."""
    found = arrays[name]
    fits = len(found.shape) == len(shape) and all(
        want in (None, have) for want, have in zip(shape, found.shape, strict=True)
    )
    if not fits or found.dtype.newbyteorder("=") != np.dtype(dtype):
        lengths = ", ".join("?" if want is None else str(want) for want in shape)
        raise SpecError(
            f"'{name}' is {found.dtype.name} of shape {list(found.shape)}, not {np.dtype(dtype).name} of [{lengths}]"
        )
    return np.array(found, dtype)


def extent_of_tensor(low: float, high: float, count: int, sample: int) -> Extent:
    """What a look at a whole tensor finds whose values are all finite."""
    lows, highs = np.array([low + 0.0], np.float32), np.array([high + 0.0], np.float32)
    return Extent(lows, highs, np.array([count], np.int64), peaks=((max(-low, high), sample),))


def two_largest(peaks: tuple[tuple[float, int], ...]) -> tuple[tuple[float, int], ...]:
    """Of equally large ones the earlier sample comes first, so that the order of arrival does not matter."""
    return tuple(sorted(peaks, key=lambda peak: (-peak[0], peak[1]))[:2])


def _extent_of(values: np.ndarray, axis: int | None, sample: int) -> Extent:
    """The extent of an array that belongs to one sample."""
    if values.dtype == np.float32:
        return _extent_of_piece(values, axis, sample)
    rows = 1 if axis is None else values.shape[axis]
    whole = Extent(np.full(rows, np.inf, np.float32), np.full(rows, -np.inf, np.float32), np.zeros(rows, np.int64))
    for index in pieces(values.shape):
        part = _extent_of_piece(as_float32(values[index]), axis, sample)
        here = slice(0, 1) if axis is None else index[axis]
        whole.low[here] = np.minimum(whole.low[here], part.low)
        whole.high[here] = np.maximum(whole.high[here], part.high)
        whole.count[here] += part.count
        _unite_remarks(whole, part)
    whole.peaks = two_largest(whole.peaks)[:1]
    return whole


def _extent_of_piece(values: np.ndarray, axis: int | None, sample: int) -> Extent:
    if axis is None:
        with np.errstate(invalid="ignore"):
            lowest, highest = float(values.min()), float(values.max())
        if math.isfinite(lowest) and math.isfinite(highest):
            return extent_of_tensor(lowest, highest, values.size, sample)
    over = None if axis is None else other_axes(values.ndim, axis)
    with np.errstate(invalid="ignore"):
        low, high = (_reduced(extreme, values, axis) for extreme in (np.minimum, np.maximum))
    # NaN and infinities always show in the minimum or the maximum, so clean data needs no pass of its own for them.
    lowest, highest = float(low.min()), float(high.max())
    if math.isfinite(lowest) and math.isfinite(highest):
        count = np.full(len(low), values.size // len(low), np.int64)
        zero = np.float32(0.0)
        return Extent(low + zero, high + zero, count, peaks=((max(-lowest, highest), sample),))
    finite = np.isfinite(values)
    low = np.atleast_1d(np.min(values, axis=over, where=finite, initial=np.inf)) + np.float32(0.0)
    high = np.atleast_1d(np.max(values, axis=over, where=finite, initial=-np.inf)) + np.float32(0.0)
    count = np.atleast_1d(finite.sum(axis=over, dtype=np.int64))
    peak = max(-float(low.min()), float(high.max()))
    peaks = ((peak, sample),) if peak > -np.inf else ()
    return Extent(low, high, count, values.size - int(count.sum()), sample, peaks)


def _reduced(extreme: np.ufunc, values: np.ndarray, axis: int | None) -> np.ndarray:
    """The least or the largest value of each row."""
    if axis is not None and values.flags.c_contiguous and math.prod(values.shape[:axis]) == 1:
        length = math.prod(values.shape[axis + 1 :])
        if length > 1:  # rows that lie one behind the other: short ones take half the time this way
            return np.asarray(extreme.reduceat(values.reshape(-1), np.arange(0, values.size, length)))
    return np.atleast_1d(extreme.reduce(values, axis=None if axis is None else other_axes(values.ndim, axis)))


def _unite(whole: Extent, part: Extent) -> None:
    """Add an extent of another sample to `whole`."""
    np.minimum(whole.low, part.low, out=whole.low)
    np.maximum(whole.high, part.high, out=whole.high)
    whole.count += part.count
    _unite_remarks(whole, part)


def _unite_remarks(whole: Extent, part: Extent) -> None:
    if part.nonfinite:
        earlier = whole.nonfinite and whole.first_nonfinite <= part.first_nonfinite
        whole.first_nonfinite = whole.first_nonfinite if earlier else part.first_nonfinite
        whole.nonfinite += part.nonfinite
    whole.peaks += part.peaks
