"""Ranges of many tensors over the runs of one thread, in vectors: a few operations per run instead of per tensor."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from onnxq.observers.statistics.range import Extent


class RangeAccumulator:
    """Minimum, maximum, count and the two largest samples of whole tensors, until `take` hands them on.

    Each run is begun with `begin`, filled with `put` and `put_many`, and ended with `end`.
    """

    def __init__(self, tensors: Iterable[str]) -> None:
        self.tensors = list(tensors)
        self.place = {tensor: i for i, tensor in enumerate(self.tensors)}
        self._reset()
        self.begin()

    def _reset(self) -> None:
        size = len(self.tensors)
        self._low, self._high = np.full(size, np.inf, np.float32), np.full(size, -np.inf, np.float32)
        self._count = np.zeros(size, np.int64)
        self._peaks, self._samples = np.full((2, size), -np.inf), np.zeros((2, size), np.int64)
        self._runs = 0

    def begin(self) -> None:
        size = len(self.tensors)
        self._run_low, self._run_high = np.full(size, np.inf, np.float32), np.full(size, -np.inf, np.float32)
        self._run_count = np.zeros(size, np.int64)

    def put(self, tensor: str, values: np.ndarray) -> bool:
        """Look at the float32 values of a tensor; refused when one of them is not finite."""
        row = values.reshape(-1)
        low, high = np.minimum.reduce(row), np.maximum.reduce(row)  # as min() and max(), with less around it
        if not (math.isfinite(low) and math.isfinite(high)):
            return False
        place = self.place[tensor]
        self._run_low[place], self._run_high[place], self._run_count[place] = low, high, values.size
        return True

    def holds(self, tensor: str) -> bool:
        """Whether a tensor was put since `begin`."""
        return bool(self._run_count[self.place[tensor]] > 0)

    def put_many(self, places: Sequence[int], low: np.ndarray, high: np.ndarray, count: np.ndarray) -> None:
        """Ranges that are known already."""
        self._run_low[places], self._run_high[places], self._run_count[places] = low, high, count

    def end(self, sample: int) -> None:
        """Take in what was put since `begin`; it belongs to one sample."""
        low, high = self._run_low + np.float32(0.0), self._run_high + np.float32(0.0)
        np.minimum(self._low, low, out=self._low)
        np.maximum(self._high, high, out=self._high)
        self._count += self._run_count
        # A thread sees samples in order, so of equal magnitudes the one that is there is the earlier one.
        peak = np.maximum(-low, high).astype(np.float64)
        largest, second = peak > self._peaks[0], peak > self._peaks[1]
        for kept, new in ((self._peaks, peak), (self._samples, np.full(len(peak), sample))):
            kept[1] = np.where(largest, kept[0], np.where(second, new, kept[1]))
            kept[0] = np.where(largest, new, kept[0])
        self._runs += 1

    def take(self) -> Iterator[tuple[str, Extent]]:
        """What was seen of each tensor since the last time."""
        low, high, count, runs = self._low, self._high, self._count, self._runs
        peaks, samples = self._peaks.T.tolist(), self._samples.T.tolist()
        self._reset()
        for i, tensor in enumerate(self.tensors if runs else ()):
            if count[i]:
                here = slice(i, i + 1)
                found = zip(peaks[i], samples[i], strict=True)
                largest = tuple((peak, sample) for peak, sample in found if peak > -np.inf)
                yield tensor, Extent(low[here], high[here], count[here], peaks=largest)
