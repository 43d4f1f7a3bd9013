"""The evaluator: what each metric says of models whose distance to the float model is known."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxq
from onnxq.demo import load_data, model_path
from onnxq.emit.kept_simulation import KeptSimulation
from onnxq.errors import ConfigError, DataError
from onnxq.graph import Graph
from onnxq.graph.write import weight_bytes
from onnxq.numerics import sqnr_db
from onnxq.ptq.method import State
from onnxq.ptq.search.evaluator import Evaluator, KeptSessions, _session_of
from onnxq.runtime.session import make_session
from onnxq.session.session import open_session
from onnxq.types import QuantPlan
from tests.zoo_graphs.net import Net

FEEDS = [{"image": image[None]} for image in load_data().test_images[:24]]
LABELS = load_data().test_labels[:24]


def evaluator(**settings: object) -> Evaluator:
    return Evaluator(Graph.load(model_path()), onnxq.get_backend("tensorrt"), FEEDS, **settings)


def noisy(strength: float) -> Graph:
    graph = Graph.load(model_path())
    weight = graph.node("classifier").inputs[1]
    values = graph.values(weight)
    noise = np.random.default_rng(0).normal(0, strength, values.shape)
    graph.set_values(weight, (values + noise).astype(np.float32))
    return graph


def logits(graph: Graph) -> np.ndarray:
    session = make_session(graph.to_model().SerializeToString())
    return np.concatenate([session.run(None, feed)[0] for feed in FEEDS])


def test_sqnr_is_that_of_the_outputs() -> None:
    expected = sqnr_db(logits(Graph.load(model_path())), logits(noisy(0.05)))
    score = evaluator().of_graph(noisy(0.05))
    assert score.value == pytest.approx(expected, abs=1e-3)
    assert score.sqnr_db == {"logits": pytest.approx(expected, abs=1e-3)}


def test_the_float_model_has_the_best_score_of_every_metric() -> None:
    for metric in ("sqnr_db", "kl", "agreement"):
        scorer = evaluator(metric=metric)
        assert scorer.of_float().goodness > scorer.of_graph(noisy(0.3)).goodness
    assert evaluator(metric="kl").of_float().value == pytest.approx(0.0, abs=1e-12)
    assert evaluator(metric="agreement").of_float().value == 1.0


def test_accuracy_counts_labels() -> None:
    right = (logits(Graph.load(model_path())).argmax(1) == LABELS).mean()
    assert evaluator(metric="accuracy", labels=LABELS).of_float().value == pytest.approx(right)
    with pytest.raises(ConfigError, match="accuracy needs labels"):
        evaluator(metric="accuracy")
    with pytest.raises(DataError, match="3 labels for 24 answers"):
        evaluator(metric="accuracy", labels=LABELS[:3]).of_float()


def test_a_metric_of_the_user_sees_all_samples_and_labels() -> None:
    def errors(outputs: dict[str, np.ndarray], labels: np.ndarray | None) -> float:
        assert labels is not None
        assert outputs["logits"].shape == (24, 10)
        return float((outputs["logits"].argmax(1) != labels).sum())

    scorer = evaluator(metric=errors, labels=LABELS, lower_is_better=True)
    assert scorer.name == "errors"
    assert scorer.of_float().goodness > scorer.of_graph(noisy(5.0)).goodness


def test_a_metric_may_import_from_the_current_folder_when_it_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "late_part.py").write_text("VALUE = 0.25\n")
    text = "def metric(outputs, labels):\n    from late_part import VALUE\n    return VALUE\n"
    (tmp_path / "late_metric.py").write_text(text)
    assert evaluator(metric="late_metric:metric").of_float().value == 0.25


def test_a_metric_that_is_not_a_number_is_the_worst() -> None:
    score = evaluator(metric=lambda outputs, labels: math.nan).of_float()
    assert score.goodness == -math.inf


def test_wrong_metrics_are_named() -> None:
    with pytest.raises(ConfigError, match="unknown metric 'snr'"):
        evaluator(metric="snr")
    with pytest.raises(ConfigError, match="returned a str: return a number"):
        evaluator(metric=lambda outputs, labels: "good").of_float()


def test_a_state_is_evaluated_as_the_target_computes_it() -> None:
    ready = open_session(model_path(), backend="tensorrt", data=FEEDS).calibrated()
    state = ready.state
    scorer = evaluator()
    assert 25 < scorer(state).value < 60
    unquantized = State(state.graph, QuantPlan("tensorrt"), state.qparams)
    assert scorer(unquantized).value == 100.0 or scorer(unquantized).value > 90


def of_outputs(metric: object, *samples: np.ndarray) -> Evaluator:
    """An evaluator of a model that returns its input, of any length, and the sum of it."""
    net = Net("outputs")
    x = net.input("x", [None] * samples[0].ndim)
    net.output(net.node("Identity", x), [None] * samples[0].ndim)
    net.output(net.node("ReduceSum", x, keepdims=0), [])
    backend = onnxq.get_backend("tensorrt")
    graph = Graph.from_model(net.model())
    return Evaluator(graph, backend, [{"x": each} for each in samples], metric=metric, labels=np.zeros(len(samples)))


def test_metrics_say_which_output_does_not_fit_them() -> None:
    vector, short, long = (np.ones(shape, np.float32) for shape in ((3,), (1, 2), (1, 4)))
    with pytest.raises(ConfigError, match="classes along axis 1"):
        of_outputs("accuracy", vector).of_float()
    with pytest.raises(ConfigError, match="as one array"):
        of_outputs(lambda outputs, labels: 0.0, short, long).of_float()


def test_single_numbers_and_samples_without_values_can_be_evaluated() -> None:
    one, none = np.ones((1, 2), np.float32), np.ones((1, 0), np.float32)
    totals = of_outputs(lambda outputs, labels: list(outputs.values())[1].sum(), one, one).of_float()
    assert totals.value == 4.0
    assert of_outputs("agreement", one, none).of_float().value == 1.0
    assert of_outputs("kl", one, none).of_float().value == 0.0


def detector() -> Net:
    """Boxes of hundreds and scores below 1, as one output."""
    net = Net("detector")
    x = net.input("x", [1, 8, 5, 5])
    boxes = net.node("Mul", net.conv(x, 8, 4, kernel=1), net.floats(300.0), name="boxes")
    scores = net.node("Sigmoid", net.conv(x, 8, 2, kernel=1), name="scores")
    net.output(net.node("Concat", boxes, scores, axis=1, output="found"))
    return net


def test_boxes_and_scores_that_are_one_output_count_apart() -> None:
    graph = Graph.from_model(detector().model())
    random = np.random.default_rng(0)
    feeds = [{"x": random.normal(size=(1, 8, 5, 5)).astype(np.float32)} for _ in range(4)]
    scorer = Evaluator(graph, onnxq.get_backend("tensorrt"), feeds)
    wrong = graph.copy()
    weight = wrong.producer(wrong.node("scores").inputs[0]).inputs[1]
    wrong.set_values(weight, np.zeros_like(wrong.values(weight)))
    score = scorer.of_graph(wrong)
    assert score.sqnr_db["found[:, 0:4]"] == math.inf
    assert score.sqnr_db["found[:, 4:6]"] < 20
    assert set(score.sqnr_db) == set(score.noise) == {"found[:, 0:4]", "found[:, 4:6]"}
    assert scorer.of_float().goodness > score.goodness + 30


def test_parts_of_one_size_are_one_output() -> None:
    net = Net("halves")
    x = net.input("x", [1, 8, 5, 5])
    net.output(net.node("Concat", net.conv(x, 8, 4), net.conv(x, 8, 4), axis=1, output="found"))
    graph = Graph.from_model(net.model())
    feeds = [{"x": np.random.default_rng(0).normal(size=(1, 8, 5, 5)).astype(np.float32)}]
    assert set(Evaluator(graph, onnxq.get_backend("tensorrt"), feeds).of_float().sqnr_db) == {"found"}


def test_two_evaluators_of_a_state_make_its_session_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ready = open_session(model_path(), backend="onnxruntime", data=FEEDS, config={"effort": 0}).calibrated()
    state = ready.state
    made: list[State] = []

    def counted(graph: Graph, *others: Any) -> Any:
        made.append(state)
        return _session_of(graph, *others)

    last = KeptSessions(KeptSimulation(ready.session.prepared.backend), most_bytes=0)
    evaluators = [
        Evaluator(state.graph, ready.session.prepared.backend, feeds, last=last) for feeds in (FEEDS[:8], FEEDS[8:])
    ]
    alone = [Evaluator(state.graph, ready.session.prepared.backend, feeds)(state) for feeds in (FEEDS[:8], FEEDS[8:])]
    for each in evaluators:
        each.of_float()
    monkeypatch.setattr("onnxq.ptq.search.evaluator._session_of", counted)
    assert [each(state) for each in evaluators] == alone
    assert len(made) == 1
    evaluators[0](state.copy())
    assert len(made) == 2
    evaluators[0].forget()
    evaluators[1](state)
    assert len(made) == 3


def test_small_models_keep_the_sessions_of_the_last_states(monkeypatch: pytest.MonkeyPatch) -> None:
    ready = open_session(model_path(), backend="onnxruntime", data=FEEDS, config={"effort": 0}).calibrated()
    made: list[Graph] = []

    def counted(graph: Graph, *others: Any) -> Any:
        made.append(graph)
        return _session_of(graph, *others)

    monkeypatch.setattr("onnxq.ptq.search.evaluator._session_of", counted)
    state, backend = ready.state, ready.session.prepared.backend
    kept = KeptSessions(
        KeptSimulation(backend), most_bytes=4 * weight_bytes(state.graph.gs)
    )  # the float model and three states
    held, fitted = (Evaluator(state.graph, backend, feeds, last=kept) for feeds in (FEEDS[:8], FEEDS[8:16]))
    alone = Evaluator(state.graph, backend, FEEDS[:8])(state)
    made.clear()
    first, others = held(state), [state.copy(), state.copy()]
    for other in others:
        held(other)
        held.forget()
    assert held(state) == first == alone
    fitted(state)
    assert len(made) == 4  # the float model once for both evaluators, and three states
    held(state.copy())
    held(others[0])  # the oldest of four
    assert len(made) == 6


def test_a_part_without_any_signal_does_not_count() -> None:
    net = Net("silent")
    x = net.input("x", [1, 8, 5, 5])
    large = net.node("Mul", net.conv(x, 8, 4, kernel=1), net.floats(300.0))
    silent = net.node("Mul", net.conv(x, 8, 2, kernel=1), net.floats(0.0), name="silent")
    small = net.node("Sigmoid", net.conv(x, 8, 2, kernel=1))
    net.output(net.node("Concat", large, silent, small, axis=1, output="found"))
    graph = Graph.from_model(net.model())
    feeds = [{"x": np.random.default_rng(0).normal(size=(1, 8, 5, 5)).astype(np.float32)}]
    assert set(Evaluator(graph, onnxq.get_backend("tensorrt"), feeds).of_float().sqnr_db) == {
        "found[:, 0:4]",
        "found[:, 6:8]",
    }
