"""Medians and their confidence intervals: which values they go between, and how often they are right."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.bench.interval import FEWEST, Interval


@pytest.mark.parametrize(("count", "low", "high"), [(6, 1, 6), (8, 1, 8), (9, 2, 8), (20, 6, 15), (30, 10, 21)])
def test_it_goes_between_the_ranks_of_the_tables(count: int, low: int, high: int) -> None:
    """Ranks as statistics books list them for 95 %."""
    found = Interval.of(range(count, 0, -1))
    assert (found.low, found.high) == (low, high)
    assert found.median == (count + 1) / 2


def test_few_values_give_all_that_was_measured() -> None:
    assert FEWEST == 6
    assert Interval.of([3.0, 1.0, 2.0]) == Interval(2.0, 1.0, 3.0)
    assert Interval.of([4.0]) == Interval(4.0, 4.0, 4.0)


def test_the_median_lies_inside_as_often_as_is_said() -> None:
    """Of a skewed distribution: nothing is assumed about it."""
    rng = np.random.default_rng(0)
    inside = 0
    for values in rng.lognormal(size=(2000, 20)):
        found = Interval.of(values.tolist())
        inside += found.low <= 1.0 <= found.high
    assert 0.945 <= inside / 2000 <= 0.975  # 95.9 % with 20 values
