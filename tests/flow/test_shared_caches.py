"""A run writes the same bytes with the caches that its steps share and without them, whatever the number of workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import onnxq
from onnxq.calibrate.kept_statistics import KeptStatistics
from onnxq.demo import load_data, model_path
from onnxq.emit.kept_simulation import KeptSimulation
from onnxq.emit.simulate import simulate
from onnxq.graph import Graph
from onnxq.ptq.search import evaluator
from onnxq.ptq.search.evaluator import KeptSessions
from tests.flow.language_model import language_model, sentences

FILES = ("model.onnx", "plan.json", "qparams.json")
"""Not the report: it has the seconds of each stage."""


def without_shared_caches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every step collects, writes and loads what it needs itself; returns what was asked for."""
    asked: list[str] = []

    def nothing(kept: KeptStatistics, *arguments: Any, **options: Any) -> None:
        asked.append("statistics")

    def simulated(kept: KeptSimulation, *state: Any) -> Graph:
        asked.append("simulation")
        return simulate(*state, kept._backend, pairs=True)[0]

    def session(kept: KeptSessions, state: Any, selecting: Any = ()) -> Any:
        asked.append("session")
        graph = kept._simulation.of(state.graph, state.plan.active, state.qparams)
        return evaluator.GivenSession.of(graph, selecting, evaluator._session_of)

    monkeypatch.setattr(KeptStatistics, "on_some", nothing)
    monkeypatch.setattr(KeptStatistics, "on_all", nothing)
    monkeypatch.setattr(KeptSimulation, "of", simulated)
    monkeypatch.setattr(KeptSessions, "of", session)
    monkeypatch.setattr(KeptSessions, "of_float", lambda kept, graph, further: evaluator._session_of(graph, further))
    return asked


def demo() -> tuple[Any, Any]:
    return model_path(), load_data().calibration[:16]


def sentence_model() -> tuple[Any, Any]:
    return language_model("apart"), sentences(16)


@pytest.fixture(params=[demo, sentence_model], ids=lambda made: made.__name__)
def given(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    model, data = request.param()
    return model, data


def written(given: tuple[Any, Any], out: Path, **config: Any) -> list[bytes]:
    model, data = given
    onnxq.quantize(model, backend="onnxruntime", data=data, out=out, config={"effort": 1, **config})
    return [(out / name).read_bytes() for name in FILES]


def test_a_run_without_shared_caches_writes_the_same_bytes(
    given: tuple[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = written(given, tmp_path / "shared")
    asked = without_shared_caches(monkeypatch)
    assert written(given, tmp_path / "alone") == shared
    assert {"statistics", "simulation", "session"} <= set(asked)


def test_any_number_of_workers_writes_the_same_bytes(given: tuple[Any, Any], tmp_path: Path) -> None:
    one, *others = (written(given, tmp_path / f"{workers}", workers=workers) for workers in (1, 2, 5))
    assert all(other == one for other in others)
