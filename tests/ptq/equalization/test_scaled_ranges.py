"""Ranges of an equalized graph follow from those before, without a run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from onnxq.calibrate import activation_leaders, channels_by_sample, gather, kept_statistics
from onnxq.calibrate.channels_by_sample import ChannelsBySample
from onnxq.calibrate.gather import Gathered
from onnxq.demo import load_data, model_path
from onnxq.ptq.equalization import channel_statistics
from onnxq.ptq.equalization.cross_layer_equalization import scalable_channel_axes
from onnxq.ptq.method import Improved, State, Task, read_improvement
from onnxq.ptq.search.sample_split import split_samples
from onnxq.ptq.search.stage import statistics_to_share
from onnxq.runtime.collect import collect
from onnxq.session.session import open_session

SAMPLES = [{"image": image[None]} for image in load_data().calibration[:16]]


def equalized(observer: str) -> tuple[Improved, State, Task]:
    session = open_session(model_path(), backend="tensorrt", data=SAMPLES, config={"observer": observer})
    session.open_data()
    ready = session.calibrated(None, kept=lambda: statistics_to_share(session))
    assert session.dataset is not None
    split = split_samples(session.dataset)
    assert split is not None
    task = Task(session.prepared.graph, session.prepared.backend, split.fitted, statistics=ready.kept)
    return read_improvement("cross_layer_equalization").run(ready.state, task), ready.state, task


def told(found: Improved, task: Task) -> Gathered | None:
    """What the statistics know of the equalized graph without a run."""
    assert task.statistics is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_statistics, "gather", lambda *_, **__: None)
        return task.statistics.on_some(found.state.graph, activation_leaders(found.state.plan), reusable=False)


def peaks(found: Gathered, tensor: str) -> tuple[tuple[float, int], ...]:
    (statistic,) = found.statistics[tensor].values()
    return statistic.peaks


def test_what_a_run_of_the_equalized_graph_would_see_is_known_before() -> None:
    found, before, task = equalized("minmax")
    assert found.changed
    leaders, statistics = activation_leaders(found.state.plan), task.statistics
    known = told(found, task)
    assert known is not None
    assert statistics is not None
    whole = statistics.on_all(found.state.graph, leaders, reusable=False)
    changed = 0
    for ours, samples in ((known, task.samples), (whole, task.samples.dataset)):
        run = gather(found.state.graph, leaders, samples)
        assert ours is not None
        assert ours.samples == run.samples
        for tensor in run.statistics:
            seen, expected = ours.range_of(tensor), run.range_of(tensor)
            assert seen is not None
            assert expected is not None
            np.testing.assert_allclose(seen, expected, rtol=1e-4, atol=1e-5)
            for mine, theirs in zip(peaks(ours, tensor), peaks(run, tensor), strict=True):
                assert mine[1] == theirs[1]  # the sample that sets the range
                np.testing.assert_allclose(mine[0], theirs[0], rtol=1e-4)
            earlier = statistics.on_some(before.graph, activation_leaders(before.plan))
            assert earlier is not None
            changed += earlier.range_of(tensor) != seen
    assert changed >= 6


def test_observers_that_look_at_more_than_a_range_take_a_run() -> None:
    found, _, task = equalized("percentile")
    assert found.changed
    assert told(found, task) is None


def test_nobody_is_told_where_no_statistics_are_kept() -> None:
    _, before, task = equalized("minmax")
    assert read_improvement("cross_layer_equalization").run(before, replace(task, statistics=None)).changed


def looked_at(state: State, task: Task) -> dict[str, dict[int, tuple[np.ndarray, np.ndarray]]]:
    """Ends of the channels of each tensor in each sample, by a run of the state's own graph."""
    axes = scalable_channel_axes(state.graph, state.plan)
    statistics = {name: ChannelsBySample(axis) for name, axis in axes.items()}
    collect(state.graph, task.samples.dataset, {name: (statistic,) for name, statistic in statistics.items()})
    return {
        name: {number: (extent.low, extent.high) for number, extent in statistic.seen.items()}
        for name, statistic in statistics.items()
    }


def test_channels_are_looked_at_while_calibrating_and_followed_through_equalization() -> None:
    found, before, task = equalized("minmax")
    assert task.statistics is not None
    for state in (before, found.state):
        known = task.statistics.channels_of(state.graph)
        expected = looked_at(state, task)
        assert expected
        assert expected.keys() <= known.keys()
        for name, by_sample in expected.items():
            assert known[name].seen.keys() == by_sample.keys() == set(range(len(SAMPLES)))
            for number, ends in by_sample.items():
                seen = known[name].seen[number]
                np.testing.assert_allclose((seen.low, seen.high), ends, rtol=1e-4, atol=1e-5)


def test_equalization_runs_nothing_that_calibration_has_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    found, before, task = equalized("minmax")
    monkeypatch.delattr(channel_statistics, "Tap")
    again = read_improvement("cross_layer_equalization").run(before, task)
    assert again.changed == found.changed


def test_more_channels_than_memory_is_meant_for_are_looked_at_when_somebody_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected, _, _ = equalized("minmax")
    monkeypatch.setattr(channels_by_sample, "MOST_BYTES", 1000)
    found, before, task = equalized("minmax")
    assert task.statistics is not None
    assert not task.statistics.channels_of(before.graph)
    assert found.changed == expected.changed
