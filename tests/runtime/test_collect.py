"""Collecting sees every value of every sample once, with the same bits however the work is divided."""

from __future__ import annotations

import threading

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnxq.errors import ConfigError, DataError
from onnxq.observers import EmaStatistic, HistogramStatistic, RangeStatistic
from onnxq.runtime import buffers, collect_pass, reduce, tap
from onnxq.runtime.buffers import BufferedTap
from onnxq.runtime.collect import Engine, Journal, _Run, collect
from onnxq.runtime.samples import Shard
from onnxq.runtime.tap import Tap
from tests.runtime.small_graphs import (
    ACTIVATIONS,
    bits,
    build,
    chain,
    constant,
    convolutions,
    feeds,
    images,
    in_batches,
    info,
    ranges,
)

ALONE = Engine(workers=1)


@pytest.fixture
def reduced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Sessions are arranged, as only these reduce inside the graph, though so few samples are not worth it.

    The tensors that are reduced are noted.
    """
    seen: list[str] = []
    make = tap.arranged_session

    def noted(model, readers, *arguments, **options):  # type: ignore[no-untyped-def]
        seen.extend(node.input[0] for node in readers if node.op_type == "ReduceMax")
        return make(model, readers, *arguments, **options)

    monkeypatch.setattr(tap, "arranged_session", noted)
    monkeypatch.setattr(_Run, "_arranging_pays", lambda self, pinned: True)
    return seen


def both_kinds() -> dict[str, list[RangeStatistic]]:
    return {name: [RangeStatistic(), HistogramStatistic()] for name in ACTIVATIONS}


def test_the_ranges_are_those_of_the_tensors_onnxruntime_computes() -> None:
    graph, data = convolutions(), images(5)
    found = ranges(ACTIVATIONS)
    report = collect(graph, in_batches(data, 1), found)
    model = graph.to_model()
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in ACTIVATIONS if name not in ("x", "y"))
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for name in ACTIVATIONS:
        values = data if name == "x" else session.run([name], {"x": data})[0]
        statistic = found[name][0]
        np.testing.assert_allclose(statistic.minimum, values.min(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(statistic.maximum, values.max(), rtol=1e-5, atol=1e-6)
        assert int(statistic.count[0]) == values.size
    assert report.samples == 5


@pytest.mark.parametrize("arranged", [False, True])
@pytest.mark.parametrize("kinds", [lambda: ranges(ACTIVATIONS), both_kinds])
def test_batch_size_workers_and_memory_change_no_bit(kinds, arranged: bool, monkeypatch) -> None:
    monkeypatch.setattr(_Run, "_arranging_pays", lambda self, pinned: arranged)
    graph, data = convolutions(), images(32)
    expected = kinds()
    collect(graph, in_batches(data, 1), expected, engine=ALONE)
    variants = [
        (4, Engine(workers=2)),
        (32, Engine(workers=1)),
        (5, Engine(workers=3)),
        (1, Engine(workers=2, memory_limit=300_000)),
    ]
    for size, engine in variants:
        found = kinds()
        report = collect(graph, in_batches(data, size), found, engine=engine)
        assert bits(found) == bits(expected), (size, engine)
        assert report.samples == 32


@pytest.mark.parametrize("count", [1, 2, 3])
def test_merged_shards_give_the_bits_of_the_whole(count: int) -> None:
    graph, data = convolutions(), images(8)
    expected, merged = both_kinds(), both_kinds()
    collect(graph, in_batches(data, 1), expected)
    total = 0
    for number in range(1, count + 1):
        part = both_kinds()
        total += collect(graph, in_batches(data, 4), part, shard=Shard(number, count)).samples
        for name, kinds in part.items():
            for whole, one in zip(merged[name], kinds, strict=True):
                whole.merge(one)
    assert bits(merged) == bits(expected)
    assert total == 8


def test_reducing_inside_the_graph_and_looking_at_the_values_give_the_same_bits(monkeypatch, reduced) -> None:
    graph, data = convolutions(), in_batches(images(6), 1)
    inside, outside = ranges(ACTIVATIONS), ranges(ACTIVATIONS)
    sizes = dict.fromkeys(ACTIVATIONS, 1 << 20)
    assert reduce.reducible(graph, ACTIVATIONS, sizes, data[0]) == [name for name in ACTIVATIONS if name != "x"]
    collect(graph, data, inside)
    assert reduced == ["c0", "r0", "c1", "r1", "c2", "r2"]
    monkeypatch.setattr(reduce, "SMALLEST", 1 << 40)
    reduced.clear()
    collect(graph, data, outside)
    assert not reduced
    assert bits(inside) == bits(outside)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_nan_or_infinity_inside_the_graph_is_found_though_only_ranges_leave_it(bad: float, reduced) -> None:
    graph, data = convolutions(), images(6)
    data[3, 1, 7, 9] = bad
    found = ranges(["c0", "r0"])
    collect(graph, in_batches(data, 1), found, engine=ALONE)
    assert reduced[:2] == ["c0", "r0"]
    (statistic,) = found["c0"]
    assert statistic.nonfinite == 9 * 16
    assert statistic.first_nonfinite == 3
    assert np.isfinite([statistic.minimum, statistic.maximum]).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_nan_or_infinity_in_one_of_many_small_tensors_is_found(bad: float, monkeypatch) -> None:
    """Their ranges are taken by one call for all of them: the others keep theirs, and histograms see every value."""
    nodes = [helper.make_node("Mul", ["x", "two"], ["t0"], name="a"), helper.make_node("Abs", ["z"], ["t1"], name="b")]
    graph = build(
        nodes,
        [info(name, ["N", 4]) for name in "xz"],
        [info(name, ["N", 4]) for name in ("t0", "t1")],
        [constant("two", 2.0)],
    )
    data = [{"x": one["x"], "z": one["x"] + 1} for one in feeds(6)]
    data[3]["x"] = np.array([[1.0, 2.0, bad, -9.0]], np.float32)

    def seen() -> dict[str, list[RangeStatistic]]:
        found = {name: [RangeStatistic(), HistogramStatistic()] for name in ("t0", "t1")}
        collect(graph, data, found, engine=ALONE)
        return found

    together = seen()
    monkeypatch.setattr(buffers, "MOST_TOGETHER", 0)
    assert bits(together) == bits(seen())
    assert [kind.first_nonfinite for kind in together["t0"]] == [3, 3]
    assert float(together["t0"][0].minimum[0]) == -18.0
    assert [kind.nonfinite for kind in together["t1"]] == [0, 0]


def test_graphs_of_many_small_tensors_are_optimized_less() -> None:
    """What decides is the graph, whatever is looked at and however many samples there are."""
    many = tap.SMALL_KERNELS_NODES + 1
    small, large = chain(many), chain(many, ("N", tap.SMALL_TENSOR + 1))
    for graph in (small, large):
        graph.infer_shapes()
    assert [tap.optimization_of(graph) for graph in (chain(3), small, large)] == ["all", "basic", "all"]
    assert tap.optimization_of(chain(many)) == "all"  # nobody knows how large its tensors are


def test_a_sum_that_overflows_is_no_nan(reduced) -> None:
    nodes = [
        helper.make_node("Mul", ["x", "big"], ["t"], name="mul"),
        helper.make_node("Abs", ["t"], ["y"], name="abs"),
    ]
    graph = build(nodes, [info("x", [1, 1 << 15])], [info("y", [1, 1 << 15])], [constant("big", 1e35)])
    found = ranges(["t", "y"])
    data = [{"x": np.linspace(1, 900, 1 << 15, dtype=np.float32)[None]}] * 3
    collect(graph, data, found)
    assert reduced == ["y"]
    assert found["t"][0].nonfinite == 0
    assert float(found["y"][0].maximum[0]) == np.float32(900) * np.float32(1e35)


def test_a_small_memory_limit_divides_the_work_and_changes_nothing() -> None:
    graph, data = chain(6), feeds(3)
    names = [f"t{i}" for i in range(6)]
    whole, divided = ranges(names), ranges(names)
    assert collect(graph, data, whole).passes == 1
    report = collect(graph, data, divided, engine=Engine(workers=1, memory_limit=2 * 4 * 4))
    assert report.passes == 3
    assert report.samples == 3
    assert bits(whole) == bits(divided)


@pytest.mark.parametrize(("length", "arranged"), [(20, 0), (70, 1)])
def test_sessions_are_arranged_where_nobody_knows_what_a_run_would_keep(
    length: int, arranged: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ordinary session keeps all that is pinned until a run ends, also what nobody looks at."""
    made = []
    make = tap.arranged_session
    monkeypatch.setattr(tap, "arranged_session", lambda *args, **options: made.append(1) or make(*args, **options))
    graph, data = chain(length), feeds(3)  # shapes were not inferred
    found = ranges(["t0"])
    collect(graph, data, found)
    assert len(made) == arranged
    assert float(found["t0"][0].maximum[0]) == 2 * max(feed["x"].max() for feed in data)


def test_tensors_larger_than_declared_are_measured_and_divided() -> None:
    # The declared shape is unknown, so the estimate (the size of the input) is 64 times too small.
    nodes = [helper.make_node("Expand", ["x", "shape"], [f"t{i}"], name=f"e{i}") for i in range(4)]
    nodes.append(helper.make_node("Sum", [f"t{i}" for i in range(4)], ["y"], name="sum"))
    graph = build(nodes, [info("x", [1, 4])], [info("y", [None, None])], [constant("shape", [64, 4], np.int64)])
    found = ranges([f"t{i}" for i in range(4)])
    report = collect(graph, feeds(2), found, engine=Engine(workers=1, memory_limit=2 * 64 * 4 * 4))
    assert report.passes == 2
    assert all(int(kinds[0].count[0]) == 2 * 64 * 4 for kinds in found.values())


def test_varying_shapes_are_seen_whole() -> None:
    """The length of axis 1 changes from sample to sample, so buffers of other sizes are needed."""
    nodes = [helper.make_node("Mul", ["x", "two"], ["y"], name="mul")]
    graph = build(nodes, [info("x", ["N", "L"])], [info("y", ["N", "L"])], [constant("two", 2.0)])
    random = np.random.default_rng(1)
    data = [{"x": random.normal(size=(1, length)).astype(np.float32)} for length in (3, 9, 3, 9, 1, 9, 3)]
    found = {"y": [HistogramStatistic()]}
    collect(graph, data, found)
    everything = 2 * np.concatenate([feed["x"].ravel() for feed in data])
    (statistic,) = found["y"]
    assert int(statistic.count[0]) == everything.size
    assert int(statistic.bins().count.sum()) == everything.size
    assert (float(statistic.minimum[0]), float(statistic.maximum[0])) == (everything.min(), everything.max())


def test_a_shape_that_depends_on_the_data_is_seen_whole() -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["where"], name="nonzero"),
        helper.make_node("Cast", ["where"], ["y"], name="cast", to=TensorProto.FLOAT),
    ]
    graph = build(nodes, [info("x", [1, 6])], [info("y", [2, None])])
    counts = [3, 3, 6, 0, 1, 5]
    data = [{"x": np.array([[1.0] * n + [0.0] * (6 - n)], np.float32)} for n in counts]
    found = {"y": [RangeStatistic()]}
    collect(graph, data, found)
    assert int(found["y"][0].count[0]) == 2 * sum(counts)
    assert float(found["y"][0].maximum[0]) == 5.0


def test_a_constant_is_looked_at_once() -> None:
    found = ranges(["two", "t0"])
    collect(chain(), feeds(4), found)
    assert int(found["two"][0].count[0]) == 1
    assert int(found["t0"][0].count[0]) == 16


def test_progress_counts_the_runs_of_all_passes() -> None:
    calls: list[tuple[int, int | None]] = []
    collect(
        chain(4),
        feeds(2),
        ranges([f"t{i}" for i in range(4)]),
        engine=Engine(workers=1, memory_limit=32),
        progress=lambda done, total: calls.append((done, total)),
    )
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_no_samples_is_an_error() -> None:
    with pytest.raises(DataError, match="no samples"):
        collect(chain(), [], ranges(["t0"]))


def test_an_error_in_one_worker_reaches_the_caller() -> None:
    data = feeds(20)
    data[13] = {"x": np.zeros((1, 4, 4), np.float32)}
    with pytest.raises(DataError, match="sample 13"):
        collect(chain(), data, ranges(["t0"]), engine=Engine(workers=2))
    assert not [t for t in threading.enumerate() if t.name.startswith("onnxq-") and t.name[6:].isdigit()]


def test_order_dependent_statistics_are_folded_in_order_by_any_number_of_workers() -> None:
    graph, data = convolutions(), in_batches(images(24), 1)
    expected, found = ({name: [EmaStatistic(decay=0.8)] for name in ACTIVATIONS} for _ in range(2))
    collect(graph, data, expected, engine=ALONE)
    collect(graph, data, found, engine=Engine(workers=4))
    assert bits(found) == bits(expected)


@pytest.mark.parametrize("workers", [1, 3])
def test_the_memory_limit_holds_for_every_sample(monkeypatch, workers: int) -> None:
    """A NaN makes every range inside the graph doubtful, and a later sample is larger than the first."""
    held = []

    def watch(self, feed, where, run):
        seen = run(self, feed, where)
        values = seen if isinstance(seen, dict) else seen.values
        held.append(sum(a.nbytes for name, a in values.items() if name != "x") if len(values) > 1 else 0)
        return seen

    for kind in (BufferedTap, Tap):
        run = kind.run
        monkeypatch.setattr(kind, "run", lambda self, feed, where="", run=run: watch(self, feed, where, run))
    nodes = [
        helper.make_node("Mul", ["x" if i == 0 else f"t{i - 1}", "half"], [f"t{i}"], name=f"n{i}") for i in range(8)
    ]
    graph = build(nodes, [info("x", ["N", "L"])], [info("t7", ["N", "L"])], [constant("half", 0.5)])
    graph.infer_shapes()
    random = np.random.default_rng(3)
    data = [{"x": random.normal(size=(1, length)).astype(np.float32)} for length in [20_000] * 4 + [80_000] * 3]
    data[2]["x"][0, 5] = np.nan
    limit = workers * 5 * 80_000
    names = [f"t{i}" for i in range(8)]
    for kind in (RangeStatistic, HistogramStatistic):
        held.clear()
        found = {name: [kind()] for name in names}
        collect(graph, data, found, engine=Engine(workers=workers, memory_limit=limit))
        assert max(held) <= limit // workers
        everything = np.concatenate([feed["x"].ravel() for feed in data])
        assert found["t3"][0].nonfinite == 1
        assert found["t3"][0].first_nonfinite == 2
        assert float(found["t3"][0].maximum[0]) == np.nanmax(everything) * np.float32(0.5**4)
        assert int(found["t7"][0].count[0]) == everything.size - 1


def test_ever_new_shapes_do_not_fill_the_memory() -> None:
    tap = BufferedTap(Tap(chain(), ["t0", "t1"]))
    for rows in range(1, 60):
        tap.run(feeds(1, rows)[0], "a sample")
    assert len(tap._shapes) <= buffers.MOST_SHAPES


def test_samples_that_need_their_order_do_not_pile_up_behind_a_slow_one(monkeypatch) -> None:
    monkeypatch.setattr(collect_pass, "FARTHEST_AHEAD", 4)
    waiting, too_far = [], threading.Event()

    class Slow(EmaStatistic):
        def look(self, array, sample=0, *, batch=1):
            if sample == 1:
                too_far.wait(0.3)  # the time in which the others would pile up
            waiting.append(sample)
            if sample > 1 + 4 + 3:
                too_far.set()
            return super().look(array, sample, batch=batch)

    found = {"t0": [Slow()]}
    collect(chain(), feeds(30), found, engine=Engine(workers=3))
    assert found["t0"][0].samples == 30
    assert max(waiting[: waiting.index(1)]) <= 1 + 4 + 3


class Interrupted(Exception):
    pass


def test_a_run_that_was_saved_goes_on_where_it_ended() -> None:
    graph, data = convolutions(), in_batches(images(12), 1)
    expected = both_kinds()
    collect(graph, data, expected)
    found, numbers = both_kinds(), []

    def save():
        if found["y"][0].samples >= 5:
            raise Interrupted

    journal = Journal(lambda sample: numbers.append(sample.number), save, seconds=0.0)
    with pytest.raises(Interrupted):
        collect(graph, data, found, journal=journal)
    reached = found["y"][0].samples
    assert 5 <= reached < 12
    assert numbers == list(range(reached))
    assert int(found["y"][0].count[0]) == reached * 10
    # One statistic starts from nothing: it needs the samples that the others hold already.
    found["r1"][0] = RangeStatistic()
    numbers.clear()
    report = collect(graph, data, found, journal=Journal(lambda sample: numbers.append(sample.number), lambda: None))
    assert bits(found) == bits(expected)
    assert numbers == list(range(12))
    assert (report.samples, report.passes) == (12, 2)


def test_memory_limits_and_workers_must_be_positive() -> None:
    for options in ({"workers": 0}, {"memory_limit": 0}):
        with pytest.raises(ConfigError, match="at least 1"):
            Engine(**options)


def test_every_worker_has_buffers_of_its_own() -> None:
    """Values that a worker still looks at must not be overwritten by another worker's run."""
    graph = convolutions()
    data = [{"x": np.full((1, 3, 48, 48), i, np.float32)} for i in range(24)]
    found = {"c0": [HistogramStatistic()]}
    collect(graph, data, found, engine=Engine(workers=4))
    alone = {"c0": [HistogramStatistic()]}
    collect(graph, data, alone, engine=ALONE)
    assert bits(found) == bits(alone)
