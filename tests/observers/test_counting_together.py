"""Many small tensors counted in one call: the counts are those of each tensor by itself."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.observers import HistogramStatistic
from onnxq.observers.statistics import counting_together
from onnxq.observers.statistics.counting import add_counts, count_by_numpy
from onnxq.observers.statistics.counting_together import CountsTogether
from onnxq.runtime.collect import Engine, collect
from tests.runtime.small_graphs import build, constant, info

pytestmark = pytest.mark.skipif(not CountsTogether.possible(), reason="the part in C was not built")

SIZES = (1, 300, 17, 5000)


def rows_of(runs: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Runs of some tensors one behind the other, with gaps that are not to be counted, and where each lies."""
    random = np.random.default_rng(runs)
    ends = np.cumsum(SIZES)
    edges = np.stack([ends - SIZES, ends - 1 + (np.array(SIZES) == 1)], axis=1)
    rows = [
        (random.normal(size=ends[-1]) * 10.0 ** random.integers(-30, 30, ends[-1])).astype("f") for _ in range(runs)
    ]
    for row in rows:
        row[::7] = 0.0
        row[3::11] = -0.0
    return rows, edges


def test_counts_are_those_of_each_tensor_alone() -> None:
    rows, edges = rows_of(40)  # thousands of pages: more than are there at first
    together = CountsTogether(["a", "b", "c", "d"], edges)
    which = [np.array([0, 1, 3]) if number % 3 else np.array([1, 2, 3]) for number in range(len(rows))]
    for row, numbers in zip(rows, which, strict=True):
        together.count(row, numbers)
    found = dict(together.take())
    for tensor, (begin, end) in enumerate(edges):
        parts = [count_by_numpy(row[begin:end]) for row, numbers in zip(rows, which, strict=True) if tensor in numbers]
        expected = parts[0]
        for more in parts[1:]:
            expected = add_counts(expected, more)
        pages, table = found["abcd"[tensor]]
        assert np.array_equal(pages, expected[0])
        assert np.array_equal(table, expected[1])
    assert dict(together.take()) == {}


def test_tensors_outside_of_the_values_are_refused() -> None:
    together = CountsTogether(["a"], np.array([[0, 9]]))
    for values, which in ((np.zeros(8, np.float32), [0]), (np.zeros(9, np.float32), [1])):
        with pytest.raises(ValueError, match="do not lie within"):
            together.count(values, np.array(which))


def test_counts_are_handed_on_before_a_counter_could_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    together = CountsTogether(["a"], np.array([[0, 9]]))
    together.count(np.zeros(9, np.float32), np.array([0]))
    assert not together.full
    monkeypatch.setattr(counting_together, "_MOST_COUNTED", 18)
    assert together.full
    (counted,) = dict(together.take()).values()
    assert int(counted[1].sum()) == 9
    assert not together.full


@pytest.mark.parametrize("workers", [1, 3])
def test_a_collection_has_the_same_histograms_either_way(monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    nodes = ["Relu", "Sigmoid", "Sqrt"]
    made = [("x", "a"), ("a", "b"), ("x", "c")]  # the root of a negative number is NaN
    graph = build(
        [_node(op, *names) for op, names in zip(nodes, made, strict=True)],
        [info("x", ["N", "K"])],
        [info(name, ["N", "K"]) for name in "abc"],
        [constant("unused", 1.0)],
    )
    random = np.random.default_rng(0)
    feeds = [{"x": np.abs(random.normal(size=(1, 40 + 20 * (i % 2)))).astype(np.float32)} for i in range(12)]
    feeds[5]["x"][0, 3] = -1.0

    def found() -> list[dict[str, np.ndarray]]:
        statistics = {name: [HistogramStatistic()] for name in "abc"}
        collect(graph, feeds, statistics, engine=Engine(workers=workers))
        return [statistic.to_arrays() for kinds in statistics.values() for statistic in kinds]

    in_one_call = found()
    monkeypatch.setattr(CountsTogether, "possible", lambda: False)
    for one, other in zip(in_one_call, found(), strict=True):
        assert one.keys() == other.keys()
        assert all(np.array_equal(one[key], other[key]) for key in one)


def _node(op: str, read: str, made: str):  # type: ignore[no-untyped-def]
    from onnx import helper

    return helper.make_node(op, [read], [made], name=made)
