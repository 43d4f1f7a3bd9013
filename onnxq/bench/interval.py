"""Medians with their confidence intervals, which assume nothing about how the values are distributed.

The interval goes from the k-th smallest to the k-th largest value, where k is the largest number for which the median
of all that could be measured lies inside with the wanted probability: each value is below it with probability 1/2, so
that counts are binomial.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

from onnxq.json_file import JsonObject

LEVEL = 0.95
FEWEST = 6
"""Values from which on the smallest and the largest are an interval of 95 %."""


@dataclass(frozen=True)
class Interval:
    """A median; `low` to `high` is its confidence interval, or all that was measured where there are too few values."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Interval:
        ordered = sorted(map(float, values))
        count = len(ordered)
        middle = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
        outside = _outside(count)
        return cls(middle, ordered[outside], ordered[count - 1 - outside])

    def to_json(self, digits: int = 6) -> JsonObject:
        return {
            "median": float(f"{self.median:.{digits}g}"),
            "low": float(f"{self.low:.{digits}g}"),
            "high": float(f"{self.high:.{digits}g}"),
        }


def _outside(count: int) -> int:
    """How many of the smallest values, and of the largest, are outside of the interval."""
    below, outside = 0, 0
    for k in range(count // 2):
        below += comb(count, k)
        if 2 * below > (1 - LEVEL) * 2**count:
            break
        outside = k
    return outside
