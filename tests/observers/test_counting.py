"""Patterns counted by numpy, in C and one by one: always the same."""

import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from onnxq.observers.statistics import HistogramStatistic, counting
from onnxq.observers.statistics.counting import (
    PAGE,
    add_counts,
    count_by_numpy,
    count_by_row,
    count_in_c,
    count_rows_by_numpy,
)


def one_by_one(values):
    """Finite values only; minus zero and what is next to it counts as zero."""
    patterns = values[np.isfinite(values)].view(np.uint32) >> 16
    patterns[patterns == 0x8000] = 0
    return dict(zip(*(part.tolist() for part in np.unique(patterns, return_counts=True)), strict=True))


def as_dict(counts):
    pages, table = counts
    assert (np.diff(pages) > 0).all()
    assert table.any(axis=1).all()
    page, inside = np.nonzero(table)
    return dict(zip((pages[page] * PAGE + inside).tolist(), table[page, inside].tolist(), strict=True))


def values_of(size, kind):
    generator = np.random.default_rng(size)
    values = generator.standard_normal(size).astype(np.float32)
    if kind == "relu":
        values = np.maximum(values, 0)
    elif kind == "bits":
        values = generator.integers(0, 2**32, size, dtype=np.uint32).view(np.float32)
    elif kind == "minus zero":
        values = np.full(size, -0.0, np.float32)
    return values


SIZES = [1, 2, 3, 100, counting.FEW, counting.FEW + 1, 2**14, 2**14 + 1, 30_001, counting.PIECE + 17]
"""C looks for occupied pages in another way up to 2 ** 14 values."""


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["normal", "relu", "bits", "minus zero"])
def test_numpy_counts_every_pattern(size, kind):
    values = values_of(size, kind)
    assert as_dict(count_by_numpy(values)) == one_by_one(values)


compiled = pytest.mark.skipif(not counting.COMPILED, reason="onnxq was installed without a C compiler")


@compiled
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["normal", "relu", "bits", "minus zero"])
def test_c_counts_the_same(size, kind):
    values = values_of(size, kind)
    for _ in range(2):  # the second call sees the counters that the first one left
        assert as_dict(count_in_c(values)) == one_by_one(values)


@pytest.mark.parametrize("count", [pytest.param(count_by_row, marks=compiled), count_rows_by_numpy])
@pytest.mark.parametrize("shape", [(3, 50), (5, 40_000)])
def test_rows_are_counted_apart(shape, count):
    values = values_of(shape[0] * shape[1], "normal").reshape(shape)
    found = as_dict(count(values))
    expected = {row * 65536 + key: n for row in range(shape[0]) for key, n in one_by_one(values[row]).items()}
    assert found == expected


@compiled
def test_threads_count_side_by_side():
    values = [values_of(200_000 + i, "normal") for i in range(8)]
    with ThreadPoolExecutor(4) as pool:
        for counts, one in zip(pool.map(count_in_c, values), values, strict=True):
            assert as_dict(counts) == one_by_one(one)


@compiled
def test_working_memory_that_is_too_small_is_refused():
    from onnxq.observers.statistics._counting import count

    with pytest.raises(ValueError, match="too small"):
        count(np.zeros(4, np.float32), np.zeros(4, np.uint32), np.zeros(512, np.int64), np.zeros((512, 128), np.int64))


@pytest.mark.parametrize("in_c", [pytest.param(True, marks=compiled), False])
def test_added_counts_are_those_of_all_values(monkeypatch, in_c):
    monkeypatch.setattr(counting, "COMPILED", in_c)
    parts = [values_of(3_000 + i, kind) * 10.0**i for i, kind in enumerate(["relu", "normal", "relu", "normal"])]
    parts.append(parts[1] / 2)  # no new page
    total = (np.zeros(0, np.int64), np.zeros((0, PAGE), np.int64))
    for part in parts:
        total = add_counts(total, count_by_numpy(part.astype(np.float32)))
    assert as_dict(total) == one_by_one(np.concatenate(parts).astype(np.float32))


def test_this_machine_counts_in_c():
    """A compiler is part of a development machine; a build that broke must not pass unnoticed."""
    assert counting.COMPILED or shutil.which("cc") is None


def test_values_at_odd_addresses_are_counted():
    values = values_of(1000, "normal")
    odd = np.frombuffer(b"\0" + values.tobytes(), np.uint8)[1:].view(np.float32)
    assert not odd.flags.aligned
    statistic, expected = HistogramStatistic(), HistogramStatistic()
    statistic.update(odd)
    expected.update(values)
    np.testing.assert_array_equal(statistic.bins().count, expected.bins().count)
