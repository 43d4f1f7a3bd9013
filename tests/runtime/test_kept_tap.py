"""A session that two passes over one graph share."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.demo import load_data, model_path
from onnxq.graph import Graph
from onnxq.observers import HistogramStatistic, RangeStatistic
from onnxq.runtime import kept_tap
from onnxq.runtime.collect import collect
from onnxq.runtime.kept_tap import KeptTap
from onnxq.runtime.tap import Tap

SAMPLES = [{"image": image[None]} for image in load_data().calibration[:6]]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each session that was made is arranged."""
    seen: list[bool] = []

    class Counted(Tap):
        def __init__(self, *arguments: object, arranged: bool, **how: object) -> None:
            seen.append(arranged)
            super().__init__(*arguments, arranged=arranged, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(kept_tap, "Tap", Counted)
    return seen


def test_who_asks_for_the_same_gets_the_same_session(made: list[bool]) -> None:
    graph, kept = Graph.load(model_path()), KeptTap()
    names = [str(tensor.name) for node in graph.nodes() for tensor in node.outputs]
    first = kept.of(graph, names[:3], pinned=names, threads=1)
    assert kept.of(graph, names[:3], pinned=names, threads=1) is first
    assert kept.of(graph, names[:2], pinned=names, threads=1) is not first
    assert kept.of(graph.copy(), names[:2], pinned=names, threads=1) is not first
    assert made == [False] * 3


def test_an_arranged_session_serves_everybody_and_an_ordinary_one_does_not(made: list[bool]) -> None:
    graph, kept = Graph.load(model_path()), KeptTap()
    names = [str(tensor.name) for node in graph.nodes() for tensor in node.outputs]
    ordinary = kept.of(graph, names, threads=1)
    arranged = kept.of(graph, names, threads=1, arranged=True)
    assert arranged is not ordinary
    assert kept.of(graph, names, threads=1) is arranged
    assert made == [False, True]


def test_two_passes_with_one_session_see_what_one_pass_sees(made: list[bool]) -> None:
    graph, kept = Graph.load(model_path()), KeptTap()
    names = [str(tensor.name) for node in graph.nodes() for tensor in node.outputs]

    def empty() -> dict[str, list[RangeStatistic]]:
        return {name: [HistogramStatistic()] for name in names}

    parts, whole = empty(), empty()
    for samples in (SAMPLES[:4], SAMPLES[4:]):
        collect(graph, samples, parts, kept=kept)
    assert len(made) == 1
    collect(graph, SAMPLES, whole)
    for name in names:
        for key, values in whole[name][0].to_arrays().items():
            if key not in ("samples", "peak_sample"):  # numbers in a list of their own
                np.testing.assert_array_equal(parts[name][0].to_arrays()[key], values, err_msg=f"{name} {key}")
