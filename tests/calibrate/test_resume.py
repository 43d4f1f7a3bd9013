"""Statistics in a file: never collected twice, gone on with after an interruption, and never mixed with others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from onnxq.calibrate import (
    Gathered,
    activation_leaders,
    calibrate,
    gather_into,
    gathered_from,
    merge_statistics,
    read_statistics,
    resume,
    write_statistics,
)
from onnxq.calibrate.resume import partial_path
from onnxq.demo import load_data, model_path
from onnxq.errors import DataError, UnsupportedError
from onnxq.graph import Graph
from onnxq.place import place
from onnxq.runtime.buffers import BufferedTap
from onnxq.runtime.collect import Engine
from onnxq.runtime.expose import Exposer
from onnxq.runtime.samples import Shard
from onnxq.session.prepare import Prepared, prepare
from onnxq.types import Backend, Placement, QuantPlan, QuantSpec
from tests.runtime.small_graphs import build, constant, info

OTHER_OBSERVERS = ["minmax", "absmax", "percentile:99.9", "mse", "kl", "lsq", "octav", "no_overflow"]
ALONE = Engine(workers=1)
DIVIDED = Engine(workers=1, memory_limit=3_000)
"""The activations of the demo network take about 9 kB, and the largest of them 2 kB."""


FIRST_LOOK = 1
"""The data is begun once before it is read in earnest, to see how large a feed is."""


class Interrupted(Exception):
    pass


@pytest.fixture(autouse=True)
def _save_as_often_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resume, "SAVING_SHARE", float("inf"))


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    return prepare(model_path(), "onnxruntime")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "stats.npz"


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every run of a session while collecting, as the sample that went through."""
    seen: list[str] = []
    run = BufferedTap.run

    def counted(tap: BufferedTap, feed: Mapping[str, np.ndarray], where: str) -> Any:
        seen.append(where)
        return run(tap, feed, where)

    monkeypatch.setattr(BufferedTap, "run", counted)
    return seen


def plan_of(prepared: Prepared, observer: str = "minmax", activation: QuantSpec | None = None) -> QuantPlan:
    scheme = prepared.backend.scheme
    backend: Backend = prepared.backend.replace(
        activation_observer=observer, scheme=replace(scheme, activation=activation or scheme.activation)
    )
    return place(prepared.graph, backend)


def samples(count: int = 12, start: int = 0) -> list[dict[str, np.ndarray]]:
    images = load_data().calibration
    return [{"image": images[i : i + 1]} for i in range(start, start + count)]


def collected(path: Path, prepared: Prepared, data: Any, observer: str = "minmax", **options: Any) -> Gathered:
    leaders = activation_leaders(plan_of(prepared, observer))
    return gather_into(path, prepared.graph, leaders, data, **({"engine": ALONE} | options))


def interrupted(path: Path, prepared: Prepared, data: list[Any], after: int, **options: Any) -> None:
    """A run that saves after each sample, and is cut off when it asks for one more than `after` in all passes."""
    taken = 0

    class Ending:
        def __iter__(self) -> Iterator[Any]:
            nonlocal taken
            for feed in data:
                if taken == after:
                    raise Interrupted
                taken += 1
                yield feed

    with pytest.raises(Interrupted):
        collected(path, prepared, Ending(), save_seconds=0.0, **options)


@pytest.mark.parametrize(
    "activation", [None, QuantSpec("int8"), QuantSpec("uint4", symmetric=False), QuantSpec("int16")], ids=str
)
def test_another_observer_or_format_runs_nothing_and_finds_what_a_direct_run_finds(
    path: Path, prepared: Prepared, runs: list[str], activation: QuantSpec | None
) -> None:
    collected(path, prepared, samples(), "mse")
    assert len(runs) == 12
    before = path.read_bytes()
    for observer in OTHER_OBSERVERS:
        plan = plan_of(prepared, observer, activation)
        direct = calibrate(prepared.graph, plan, samples(), engine=ALONE)
        runs.clear()
        reused = gather_into(path, prepared.graph, activation_leaders(plan), samples())
        assert not runs
        found = calibrate(prepared.graph, plan, statistics=reused)
        assert found.qparams.to_json() == direct.qparams.to_json(), observer
        stored = calibrate(prepared.graph, plan, statistics=gathered_from(read_statistics(path)))
        assert stored.qparams.to_json() == direct.qparams.to_json(), observer
    assert path.read_bytes() == before


@pytest.mark.parametrize("observer", ["ema_minmax", "ema_mse:decay=0.5", "pot_mode"])
def test_an_observer_with_a_statistic_of_its_own_collects_only_that(
    path: Path, prepared: Prepared, runs: list[str], observer: str
) -> None:
    collected(path, prepared, samples())
    plan = plan_of(prepared, observer)
    direct = calibrate(prepared.graph, plan, samples(), engine=ALONE)
    runs.clear()
    gathered = collected(path, prepared, samples(), observer)
    assert len(runs) == 12
    assert calibrate(prepared.graph, plan, statistics=gathered).qparams.to_json() == direct.qparams.to_json()
    both = path.read_bytes()
    runs.clear()
    collected(path, prepared, samples(), observer)
    collected(path, prepared, samples(), "kl")
    assert not runs
    assert path.read_bytes() == both


def test_an_observer_that_the_file_cannot_serve_says_so(path: Path, prepared: Prepared) -> None:
    collected(path, prepared, samples())
    with pytest.raises(UnsupportedError, match=r"'ema_minmax' needs .* only histogram was collected, perhaps"):
        calibrate(prepared.graph, plan_of(prepared, "ema_minmax"), statistics=gathered_from(read_statistics(path)))


@pytest.mark.parametrize("observer", ["minmax", "ema_minmax"])
def test_more_samples_are_added_to_the_bytes_of_one_run(
    path: Path, tmp_path: Path, prepared: Prepared, runs: list[str], observer: str
) -> None:
    collected(path, prepared, samples(5), observer)
    runs.clear()
    assert collected(path, prepared, samples(12), observer).samples == 12
    assert runs == [f"sample {number}" for number in range(5, 12)]
    collected(tmp_path / "whole.npz", prepared, samples(12), observer)
    assert path.read_bytes() == (tmp_path / "whole.npz").read_bytes()


@pytest.mark.parametrize("observer", ["minmax", "ema_minmax"])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_run_that_was_cut_off_goes_on_to_the_same_bytes(
    path: Path, tmp_path: Path, prepared: Prepared, runs: list[str], observer: str, workers: int
) -> None:
    engine = Engine(workers=workers)
    interrupted(path, prepared, samples(), FIRST_LOOK + 7, observer=observer, engine=engine)
    assert not path.exists()
    held = read_statistics(partial_path(path))
    assert not held.complete
    assert 0 < held.sample_count <= 7
    runs.clear()
    assert collected(path, prepared, samples(), observer, engine=engine).samples == 12
    assert len(runs) == 12 - held.sample_count
    assert not partial_path(path).exists()
    collected(tmp_path / "whole.npz", prepared, samples(), observer)
    assert path.read_bytes() == (tmp_path / "whole.npz").read_bytes()


def test_an_interruption_in_the_second_of_several_passes_loses_nothing(
    path: Path, tmp_path: Path, prepared: Prepared, runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = activation_leaders(plan_of(prepared))[1].observe[0]
    expose = Exposer.expose

    def expose_but_one(exposer: Exposer, tensor: str) -> str:
        if tensor == hidden:
            raise UnsupportedError(f"'{tensor}' lies too deep")
        return expose(exposer, tensor)

    monkeypatch.setattr(Exposer, "expose", expose_but_one)
    whole = collected(tmp_path / "whole.npz", prepared, samples(6))
    assert (whole.passes, whole.unreachable) == (1, {hidden: f"'{hidden}' lies too deep"})
    passes = collected(tmp_path / "passes.npz", prepared, samples(6), engine=DIVIDED).passes
    assert passes > 2
    assert (tmp_path / "passes.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()
    interrupted(path, prepared, samples(6), FIRST_LOOK + 6 + 4, engine=DIVIDED)
    held = read_statistics(partial_path(path))
    reached = {statistic.samples for kinds in held.statistics.values() for statistic in kinds.values()}
    assert (held.sample_count, reached) == (6, {0, 4, 6})
    runs.clear()
    resumed = collected(path, prepared, samples(6), engine=DIVIDED)
    assert len(runs) < passes * 6 - 6
    assert resumed.unreachable == whole.unreachable
    assert path.read_bytes() == (tmp_path / "whole.npz").read_bytes()


def test_a_partial_file_is_no_result(path: Path, prepared: Prepared) -> None:
    interrupted(path, prepared, samples(), 6)
    with pytest.raises(DataError, match="is not complete: finish it"):
        gathered_from(read_statistics(partial_path(path)))


def other_weights() -> Prepared:
    model = onnx.load(model_path())
    weight = max(model.graph.initializer, key=lambda tensor: len(tensor.raw_data))
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * np.float32(1.5), weight.name))
    return prepare(model, "onnxruntime")


ODD_ONE = [*samples(11), *samples(1, start=40)]

REFUSED: dict[str, tuple[list[Any], dict[str, Any], str]] = {
    "fewer samples": (samples(11), {}, "holds 12 samples, and the data has only 11"),
    "fewer samples, and another observer": (samples(11), {"observer": "ema_minmax"}, "has only 11"),
    "other samples": (samples(12, start=1), {}, "from other data"),
    "one other sample": (ODD_ONE, {}, "from other data"),
    "another order": (samples(12)[::-1], {}, "from other data"),
    "more samples in front": ([*samples(1, start=40), *samples(12)], {}, "from other data"),
    "a shard": (samples(12), {"shard": Shard(1, 2)}, "holds shard 1/1, and this run is for shard 1/2"),
}


@pytest.mark.parametrize(("data", "options", "words"), REFUSED.values(), ids=list(REFUSED))
def test_what_does_not_belong_to_the_file_is_refused_before_anything_runs(
    path: Path, prepared: Prepared, runs: list[str], data: list[Any], options: dict[str, Any], words: str
) -> None:
    collected(path, prepared, samples(12))
    before = path.read_bytes()
    runs.clear()
    with pytest.raises(DataError, match=words) as caught:
        collected(path, prepared, data, save_seconds=0.0, **options)
    assert str(path) in str(caught.value)
    assert "--fresh" in str(caught.value)
    assert not runs
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_other_weights_are_another_model(path: Path, prepared: Prepared, runs: list[str]) -> None:
    collected(path, prepared, samples(2))
    before = path.read_bytes()
    runs.clear()
    with pytest.raises(DataError, match="from another model"):
        collected(path, other_weights(), samples(2))
    assert not runs
    assert path.read_bytes() == before


def test_what_is_left_of_a_run_on_other_data_is_refused(path: Path, prepared: Prepared) -> None:
    interrupted(path, prepared, samples(), 6)
    before = partial_path(path).read_bytes()
    with pytest.raises(DataError, match=r"stats\.npz\.partial was collected from other data"):
        collected(path, prepared, samples(12, start=1))
    assert partial_path(path).read_bytes() == before
    assert not path.exists()


@pytest.mark.parametrize("name", ["stats.npz", "stats.npz.partial"])
def test_a_damaged_file_is_refused_and_stays(path: Path, prepared: Prepared, runs: list[str], name: str) -> None:
    collected(path, prepared, samples(2))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()
    path.with_name(name).write_bytes(content)
    runs.clear()
    with pytest.raises(DataError, match="is damaged"):
        collected(path, prepared, samples(2))
    assert not runs
    assert path.with_name(name).read_bytes() == content


def test_fresh_uses_nothing_that_is_there(path: Path, tmp_path: Path, prepared: Prepared, runs: list[str]) -> None:
    interrupted(path, prepared, samples(), 6)
    path.write_bytes(b"something else")
    runs.clear()
    collected(path, prepared, samples(4, start=3), fresh=True)
    assert len(runs) == 4
    assert not partial_path(path).exists()
    collected(tmp_path / "whole.npz", prepared, samples(4, start=3))
    assert path.read_bytes() == (tmp_path / "whole.npz").read_bytes()


def test_another_target_on_the_same_graph_adds_the_tensors_that_only_it_observes(
    path: Path, prepared: Prepared, runs: list[str]
) -> None:
    first = plan_of(prepared)
    tensorrt = prepare(model_path(), "tensorrt").backend
    second = place(prepared.graph, tensorrt)
    observed = [{name for p in activation_leaders(plan) for name in p.observe} for plan in (first, second)]
    assert observed[1] - observed[0], "otherwise there is nothing to add"
    direct = calibrate(prepared.graph, second, samples(), engine=ALONE)
    collected(path, prepared, samples())
    before = read_statistics(path).statistics
    runs.clear()
    gathered = gather_into(path, prepared.graph, activation_leaders(second), samples(), engine=ALONE)
    assert len(runs) == 12
    assert calibrate(prepared.graph, second, statistics=gathered).qparams.to_json() == direct.qparams.to_json()
    after = read_statistics(path).statistics
    assert after.keys() == observed[0] | observed[1]
    for tensor, kinds in before.items():
        for key, statistic in kinds.items():
            arrays = after[tensor][key].to_arrays()
            assert {k: v.tobytes() for k, v in arrays.items()} == {
                k: v.tobytes() for k, v in statistic.to_arrays().items()
            }
    runs.clear()
    collected(path, prepared, samples())
    assert not runs


def with_constant() -> tuple[Graph, list[Placement]]:
    """A tensor and a constant that share a scale, as the inputs of a Concat may."""
    node = helper.make_node("Concat", ["x", "k"], ["y"], name="join", axis=1)
    graph = build([node], [info("x", [1, 4])], [info("y", [1, 6])], [constant("k", [[9.0, -7.0]])])
    return graph, [Placement("x", QuantSpec("int8"), "activation", "test", observe=("x", "k"))]


def test_a_constant_counts_once_however_often_the_file_is_used(path: Path) -> None:
    graph, leaders = with_constant()
    data = [{"x": np.full((1, 4), i, np.float32)} for i in range(1, 6)]
    gather_into(path, graph, leaders, data[:3])
    gathered = gather_into(path, graph, leaders, data)
    (statistic,) = gathered.statistics["k"].values()
    assert int(statistic.count[0]) == 2
    whole = path.with_name("whole.npz")
    gather_into(whole, graph, leaders, data)
    assert path.read_bytes() == whole.read_bytes()


def test_a_constant_counts_once_in_all_shards(path: Path, tmp_path: Path) -> None:
    graph, leaders = with_constant()
    data = [{"x": np.full((1, 4), i, np.float32)} for i in range(1, 6)]
    gather_into(path, graph, leaders, data)
    parts = [tmp_path / f"part-{number}.npz" for number in (1, 2, 3)]
    for number, part in enumerate(parts, 1):
        gather_into(part, graph, leaders, data, shard=Shard(number, 3))
    write_statistics(tmp_path / "merged.npz", merge_statistics(map(read_statistics, parts)))
    assert (tmp_path / "merged.npz").read_bytes() == path.read_bytes()


def recurrent() -> tuple[Graph, list[Placement]]:
    """Axis 0 of the input is time, so its rows stay together."""
    random = np.random.default_rng(2)
    node = helper.make_node("RNN", ["x", "w", "r"], ["y"], name="rnn", hidden_size=4)
    weights = [constant("w", random.normal(size=(1, 4, 3))), constant("r", random.normal(size=(1, 4, 4)))]
    graph = build([node], [info("x", ["T", 1, 3])], [info("y", ["T", 1, 1, 4])], weights)
    return graph, [Placement("y", QuantSpec("int8"), "activation", "test", observe=("y",))]


def test_rows_that_stay_together_cannot_pass_over_the_end_of_the_file(path: Path) -> None:
    graph, leaders = recurrent()
    rows = np.random.default_rng(3).normal(size=(12, 1, 3)).astype(np.float32)
    gather_into(path, graph, leaders, [{"x": rows[:5]}, {"x": rows[5:10]}])
    before = path.read_bytes()
    with pytest.raises(DataError, match="from other data"):
        gather_into(path, graph, leaders, [{"x": rows[i : i + 4]} for i in (0, 4, 8)])
    assert path.read_bytes() == before


def test_shards_of_an_observer_that_depends_on_the_order_are_refused_before_running(
    path: Path, prepared: Prepared, runs: list[str]
) -> None:
    with pytest.raises(UnsupportedError, match=r"'ema_minmax' .* depends on the order .* such as minmax"):
        collected(path, prepared, samples(), "ema_minmax", shard=Shard(1, 2))
    assert not runs
    collected(path, prepared, samples(3), "ema_minmax", shard=Shard(1, 1))
    assert len(runs) == 3


def test_the_folder_of_the_file_is_made(tmp_path: Path, prepared: Prepared) -> None:
    path = tmp_path / "deep" / "er" / "stats.npz"
    with pytest.raises(DataError):
        collected(path, prepared, [])
    assert not path.parent.exists()
    collected(path, prepared, samples(2))
    assert path.is_file()


def test_extending_a_file_goes_on_after_an_interruption(
    path: Path, tmp_path: Path, prepared: Prepared, runs: list[str]
) -> None:
    collected(path, prepared, samples(5))
    finished = path.read_bytes()
    interrupted(path, prepared, samples(12), FIRST_LOOK + 9)
    assert path.read_bytes() == finished
    held = read_statistics(partial_path(path)).sample_count
    assert 5 < held <= 9
    runs.clear()
    collected(path, prepared, samples(12))
    assert runs == [f"sample {number}" for number in range(held, 12)]
    collected(tmp_path / "whole.npz", prepared, samples(12))
    assert path.read_bytes() == (tmp_path / "whole.npz").read_bytes()
    assert not partial_path(path).exists()


def test_what_is_left_of_a_run_that_had_less_than_the_file_is_not_used(
    path: Path, prepared: Prepared, runs: list[str]
) -> None:
    collected(path, prepared, samples(12))
    interrupted(path, prepared, samples(12), FIRST_LOOK + 4, fresh=True)
    assert read_statistics(partial_path(path)).sample_count < 12
    runs.clear()
    assert collected(path, prepared, samples(12)).samples == 12
    assert runs == []


def test_statistics_of_another_onnxruntime_are_refused(
    path: Path, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected(path, prepared, samples(3))
    monkeypatch.setattr("onnxruntime.__version__", "1.0.0")
    with pytest.raises(DataError, match=r"was collected with onnxruntime .* and this run has onnxruntime 1\.0\.0"):
        collected(path, prepared, samples(3))
