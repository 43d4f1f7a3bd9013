"""How close two tensors are: SQNR in dB, cosine, largest and mean squared error, summed up over any number of samples.

    sqnr = 10 * log10( sum(reference^2) / sum((reference - test)^2) )

Sums are float64. Positions whose reference is not a number to compare (NaN, infinity, or a masking constant such as
-3.4e38: anything of magnitude MASK_LEVEL or more) are left out of the sums and counted in `excluded`; those where the
test value is not the same kind of thing are counted in `mismatched`.
"""

from __future__ import annotations

import math

import numpy as np

from onnxq.errors import DataError
from onnxq.numerics.chunks import chunks

MASK_LEVEL = 1e30
"""Magnitude from which a reference value counts as minus or plus infinity: attention masks use the lowest float."""

SILENT = 0.01
"""Variance of a reference, as a part of its power, above which a test that is one number has lost it."""


class SqnrAccumulator:
    """Running comparison of one output; memory does not depend on how many samples are added.

    compared    positions that went into the sums
    excluded    positions whose reference was NaN, infinite or a mask
    mismatched  positions among those where the test value was something else (a finite number for a mask)
    """

    def __init__(self) -> None:
        self.compared = 0
        self.excluded = 0
        self.mismatched = 0
        self.max_abs_error = 0.0
        self._signal = 0.0
        self._noise = 0.0
        self._test_energy = 0.0
        self._product = 0.0
        self._reference_sum = 0.0
        self._test_range = (math.inf, -math.inf)

    def add(self, reference: np.ndarray, test: np.ndarray) -> None:
        """Take in one pair of arrays of the same shape."""
        reference, test = np.asarray(reference), np.asarray(test)
        if reference.shape != test.shape:
            raise DataError(f"cannot compare shapes {reference.shape} (reference) and {test.shape} (test)")
        for index in chunks(reference.shape):
            self._add_piece(np.asarray(reference[index]).astype(np.float64), np.asarray(test[index]).astype(np.float64))

    def merge(self, other: SqnrAccumulator) -> None:
        """Take in everything that `other` has seen."""
        self.compared += other.compared
        self.excluded += other.excluded
        self.mismatched += other.mismatched
        self.max_abs_error = max(self.max_abs_error, other.max_abs_error)
        self._signal += other._signal
        self._noise += other._noise
        self._test_energy += other._test_energy
        self._product += other._product
        self._reference_sum += other._reference_sum
        self._test_range = _widened(self._test_range, *other._test_range)

    @property
    def value(self) -> float:
        """SQNR in dB: inf without any error, -inf if a test value is NaN or infinite or the reference is all zero."""
        if self._noise == 0.0:
            return math.inf
        if self._signal == 0.0 or self._noise == math.inf:
            return -math.inf
        return 10.0 * (math.log10(self._signal) - math.log10(self._noise))

    @property
    def mse(self) -> float:
        """Mean squared error over the compared positions; 0 if there were none."""
        return self._noise / self.compared if self.compared else 0.0

    @property
    def power(self) -> float:
        """Mean square of the reference over the compared positions; 0 if there were none."""
        return self._signal / self.compared if self.compared else 0.0

    @property
    def cosine(self) -> float:
        """Cosine of the angle between the two: 1 if both are zero, 0 if one is, NaN if a test value is not finite."""
        if self._noise == math.inf:
            return math.nan
        if self._signal == 0.0 or self._test_energy == 0.0:
            return 1.0 if self._signal == self._test_energy else 0.0
        return self._product / (math.sqrt(self._signal) * math.sqrt(self._test_energy))

    @property
    def silent(self) -> bool:
        """Whether the test has one value for everything, and the reference has not.

        The reference's own differences count from SILENT of its power on: what is nearly constant may be rounded to
        one number.
        """
        if self.compared < 2 or self._test_range[0] != self._test_range[1]:
            return False
        mean = self._reference_sum / self.compared
        return self.power - mean * mean > SILENT * self.power

    def _add_piece(self, reference: np.ndarray, test: np.ndarray) -> None:
        usable = np.abs(reference) < MASK_LEVEL  # False for NaN
        if not usable.all():
            self._count_excluded(reference[~usable], test[~usable])
            reference, test = reference[usable], test[usable]
        if reference.size == 0:
            return
        self.compared += reference.size
        if not np.isfinite(test).all():
            self._noise = self.max_abs_error = math.inf
            return
        error = reference - test
        with np.errstate(over="ignore"):
            self._signal += float(np.square(reference).sum())
            self._noise += float(np.square(error).sum())
            self._test_energy += float(np.square(test).sum())
            self._product += float((reference * test).sum())
            self._reference_sum += float(reference.sum())
        self._test_range = _widened(self._test_range, float(test.min()), float(test.max()))
        self.max_abs_error = max(self.max_abs_error, float(np.abs(error).max()))

    def _count_excluded(self, reference: np.ndarray, test: np.ndarray) -> None:
        both_nan = np.isnan(reference) & np.isnan(test)
        both_mask = (np.abs(test) >= MASK_LEVEL) & (np.sign(reference) == np.sign(test))
        self.excluded += reference.size
        self.mismatched += int(np.count_nonzero(~(both_nan | both_mask)))


def _widened(held: tuple[float, float], low: float, high: float) -> tuple[float, float]:
    return min(held[0], low), max(held[1], high)


def compare(reference: np.ndarray, test: np.ndarray) -> SqnrAccumulator:
    """All the measures of one pair of arrays."""
    accumulator = SqnrAccumulator()
    accumulator.add(reference, test)
    return accumulator


def sqnr_db(reference: np.ndarray, test: np.ndarray) -> float:
    """Signal to quantization noise in dB; see `SqnrAccumulator.value` for the limits."""
    return compare(reference, test).value


def cosine(reference: np.ndarray, test: np.ndarray) -> float:
    """Cosine similarity; see `SqnrAccumulator.cosine` for zeros and NaN."""
    return compare(reference, test).cosine


def max_abs_error(reference: np.ndarray, test: np.ndarray) -> float:
    """Largest absolute difference; infinite if a test value is NaN or infinite where the reference is not."""
    return compare(reference, test).max_abs_error


def mse(reference: np.ndarray, test: np.ndarray) -> float:
    """Mean squared error; infinite if a test value is NaN or infinite where the reference is not."""
    return compare(reference, test).mse
