"""Statistics that steps share: the same bits as without, and each graph is run once over each sample."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnxq import demo
from onnxq.calibrate import activation_leaders, gather, kept_statistics
from onnxq.calibrate.kept_statistics import KeptStatistics
from onnxq.ptq.method import Samples
from onnxq.ptq.search.stage import improve_model, statistics_to_share
from onnxq.session.session import Calibrated, open_session


@pytest.fixture(scope="module")
def ready() -> Calibrated:
    data = {"image": demo.load_data().calibration[:12]}
    return open_session(demo.model_path(), backend="onnxruntime", data=data, config={"effort": 0}).calibrated()


def parts_of(ready: Calibrated) -> tuple[Samples, Samples]:
    assert ready.session.dataset is not None
    some = tuple(number for number in range(12) if number % 4 != 3)
    others = tuple(number for number in range(12) if number % 4 == 3)
    return Samples(ready.session.dataset, some), Samples(ready.session.dataset, others)


def test_both_parts_together_are_what_one_run_finds(ready: Calibrated) -> None:
    graph, leaders = ready.state.graph, activation_leaders(ready.state.plan)
    some, others = parts_of(ready)
    kept = KeptStatistics(some, others, None)
    assert ready.session.dataset is not None
    for found, samples in ((kept.on_some(graph, leaders), some), (kept.on_all(graph, leaders), ready.session.dataset)):
        assert found is not None
        whole = gather(graph, leaders, samples, reusable=True)
        assert found.samples == whole.samples
        assert found.statistics.keys() == whole.statistics.keys()
        for tensor, kinds in whole.statistics.items():
            for key, statistic in kinds.items():
                ours = found.statistics[tensor][key].to_arrays()
                for name, values in statistic.to_arrays().items():
                    np.testing.assert_array_equal(ours[name], values, err_msg=f"{tensor} {key} {name}")


def test_parameters_are_those_of_a_recalibration_without_them(ready: Calibrated) -> None:
    kept = KeptStatistics(*parts_of(ready), None)
    leaders = activation_leaders(ready.state.plan)
    shared = ready.session.recalibrated(ready.state, None, kept.on_all(ready.state.graph, leaders))
    alone = ready.session.recalibrated(ready.state)
    assert dict(shared.qparams.entries) == dict(alone.qparams.entries)


def test_each_graph_is_run_once_over_each_part(ready: Calibrated, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []

    def counted(graph: object, leaders: object, samples: Samples, **options: object) -> object:
        runs.append((graph, len(samples)))
        return gather(graph, leaders, samples, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(kept_statistics, "gather", counted)
    graph, leaders = ready.state.graph, activation_leaders(ready.state.plan)
    kept = KeptStatistics(*parts_of(ready), None)
    for _ in range(2):
        kept.on_some(graph, leaders)
        kept.on_all(graph, leaders)
    assert runs == [(graph, 9), (graph, 3)]
    copies = [graph.copy() for _ in range(kept_statistics.MOST_GRAPHS)]
    for other in (*copies, graph):
        kept.on_some(other, leaders)
    assert [len_of for _, len_of in runs] == [9, 3, 9, 9, 9]  # the first was forgotten


def test_who_asks_for_some_tensors_gets_what_was_collected_for_all(ready: Calibrated) -> None:
    graph, leaders = ready.state.graph, activation_leaders(ready.state.plan)
    kept = KeptStatistics(*parts_of(ready), None)
    kept.on_some(graph, leaders)
    few = kept.on_all(graph, leaders[1:])
    assert few is not None
    assert few is kept.on_all(graph, leaders)
    assert {tensor for placement in leaders for tensor in placement.observe} <= few.statistics.keys()
    other = KeptStatistics(*parts_of(ready), None)
    other.on_some(graph, leaders[1:])
    whole = other.on_all(graph, leaders)
    assert whole is not None
    assert whole.statistics.keys() == few.statistics.keys()


def test_a_run_with_improvements_calibrates_as_one_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = {"image": demo.load_data().calibration[:16]}
    runs: list[int] = []

    def counted(graph: object, leaders: object, samples: Samples, **options: object) -> object:
        runs.append(len(samples))
        return gather(graph, leaders, samples, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(kept_statistics, "gather", counted)
    session = open_session(demo.model_path(), backend="onnxruntime", data=data, config={"effort": 1})
    shared = session.calibrated(kept=lambda: statistics_to_share(session))
    alone = open_session(demo.model_path(), backend="onnxruntime", data=data, config={"effort": 0}).calibrated()
    assert sorted(runs) == [4, 12]
    assert dict(shared.state.qparams.entries) == dict(alone.state.qparams.entries)
    assert shared.warnings == alone.warnings
    assert shared.notes == alone.notes
    improve_model(shared, tmp_path)
    assert runs[:2] == [12, 4]
    assert len(runs) == 2  # range_setting, the ranges of trials and those of an equalized graph follow from them


def test_feeds_of_several_samples_are_counted_by_calibration_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(kept_statistics, "gather")  # nothing is collected twice
    data = [{"image": batch} for batch in np.split(demo.load_data().calibration[:16], 4)]
    session = open_session(demo.model_path(), backend="onnxruntime", data=data, config={"effort": 1})
    shared = session.calibrated(kept=lambda: statistics_to_share(session))
    whole = open_session(demo.model_path(), backend="onnxruntime", data=data, config={"effort": 0}).calibrated()
    assert shared.samples == whole.samples == 16
    assert shared.gathered is not None
    assert whole.gathered is not None
    for tensor, kinds in whole.gathered.statistics.items():
        assert [one.peaks for one in shared.gathered.statistics[tensor].values()] == [
            one.peaks for one in kinds.values()
        ]
