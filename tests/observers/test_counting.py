"""Patterns counted by numpy, by the compiled loop and one by one: always the same."""

import numpy as np
import pytest

from onnxq.observers.statistics import counting
from onnxq.observers.statistics.counting import PAGE, Counter, count_by_numpy, count_by_row


def one_by_one(values):
    patterns = values.reshape(-1).view(np.uint32) >> 16
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
    return values


SIZES = [1, 2, 3, 100, counting.FEW, counting.FEW + 1, 30_001, counting.PIECE + 17]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["normal", "relu", "bits"])
def test_numpy_counts_every_pattern(size, kind):
    values = values_of(size, kind)
    assert as_dict(count_by_numpy(values)) == one_by_one(values)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["normal", "relu", "bits"])
def test_the_compiled_loop_counts_the_same(size, kind):
    pytest.importorskip("numba")
    from onnxq.observers.statistics.counting_compiled import count_compiled

    values = values_of(size, kind)
    for _ in range(2):  # the second call sees the counters that the first one left
        assert as_dict(count_compiled(values)) == one_by_one(values)


@pytest.mark.parametrize("shape", [(3, 50), (5, 40_000)])
def test_rows_are_counted_apart(shape):
    values = values_of(shape[0] * shape[1], "normal").reshape(shape)
    found = as_dict(count_by_row(values))
    expected = {row * 65536 + key: n for row in range(shape[0]) for key, n in one_by_one(values[row]).items()}
    assert found == expected


def test_the_counter_changes_to_the_compiled_loop_when_that_pays(monkeypatch):
    pytest.importorskip("numba")
    monkeypatch.setattr(counting, "WORTH_COMPILING", 10_000)
    counter, values = Counter(), values_of(8_000, "normal")
    assert as_dict(counter.count(values)) == one_by_one(values)
    assert not counter._loading
    counter._begin_loading = counter._load  # in this thread, so that the test need not wait
    for _ in range(2):
        assert as_dict(counter.count(values)) == one_by_one(values)
    assert counter._compiled is not None
