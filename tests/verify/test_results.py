"""Outputs and parts of them: limits, silence, decisions and the figures of single samples."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import parser

from onnxq.graph import Graph
from onnxq.graph.scored import Scores
from onnxq.numerics import SqnrAccumulator
from onnxq.types import Backend, Limits, QuantPlan, QuantSpec, Scheme
from onnxq.verify.checks import verify
from onnxq.verify.decisions import DecisionCount
from onnxq.verify.report import DecisionKind, Decisions, FailureKind, VerifyReport
from onnxq.verify.results import ResultSums

BACKEND = Backend("chip", "a chip", Scheme(QuantSpec("int8"), QuantSpec("int8")), (), Limits(("int8", "uint8")))


def model(path: Path, scores: str) -> Path:
    """Boxes of hundreds and scores of a Sigmoid as one output; `scores` says what becomes of `s`."""
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[1,6,5] x) => (float[1,6,5] y) {{
        n = Constant<value_ints=[4, 2]>() k = Constant<value_float=300.0>() zero = Constant<value_float=0.0>()
        half = Constant<value_float=0.5>()
        b, t = Split<axis=1>(x, n) boxes = Mul(b, k) s = Sigmoid(t) {scores} y = Concat<axis=1>(boxes, scores) }}"""
    Graph.from_model(parser.parse_model(text)).save(path)
    return path


def data(count: int = 4) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [{"x": rng.normal(0, 2, (1, 6, 5)).astype(np.float32)} for _ in range(count)]


def checked(
    folder: Path, now: str, minimum_db: float | None = 5.0, given: str = "scores = Identity(s)"
) -> VerifyReport:
    before, after = model(folder / "float.onnx", given), model(folder / "now.onnx", now)
    return verify(before, after, QuantPlan("chip"), BACKEND, data(), minimum_db=minimum_db)


def test_a_silent_part_fails_by_its_name(tmp_path: Path) -> None:
    report = checked(tmp_path, "scores = Mul(s, zero)")
    (failure,) = report.failures
    assert (failure.kind, failure.result) == (FailureKind.SILENT, "y[:, 4:6]")
    assert failure.sqnr_db == pytest.approx(0.0)
    assert "part 'y[:, 4:6]' is silent" in str(failure)
    (output,) = report.outputs
    assert output.sqnr_db is not None
    assert output.sqnr_db > 40
    assert [part.silent for part in output.parts] == [False, True]
    assert report.worst_db == pytest.approx(0.0)
    assert [result.name for result in report.low(20.0)] == ["y[:, 4:6]"]
    assert report.to_json()["outputs"][0]["parts"][1]["silent"] is True
    json.dumps(report.to_json(), allow_nan=False)


def test_a_part_that_is_one_number_is_silent_however_near_that_is(tmp_path: Path) -> None:
    report = checked(tmp_path, "z = Mul(s, zero) scores = Add(z, half)")
    (failure,) = report.failures
    assert failure.kind == FailureKind.SILENT
    assert failure.sqnr_db is not None
    assert 0 < failure.sqnr_db < 20
    assert not checked(tmp_path, "z = Mul(s, zero) scores = Add(z, half)", minimum_db=0.0).passed


@pytest.mark.parametrize("minimum_db", [None, -1.0])
def test_silence_is_allowed_where_somebody_says_so(tmp_path: Path, minimum_db: float | None) -> None:
    report = checked(tmp_path, "scores = Mul(s, zero)", minimum_db)
    assert report.passed
    assert report.outputs[0].parts[1].silent


def test_a_part_below_the_limit_fails_like_an_output(tmp_path: Path) -> None:
    report = checked(tmp_path, "scores = Sub(half, s)")
    (failure,) = report.failures
    assert (failure.kind, failure.result) == (FailureKind.LOW, "y[:, 4:6]")
    assert "part 'y[:, 4:6]': SQNR" in str(failure)
    assert "below the required 5 dB" in str(failure)


def test_a_part_without_signal_is_not_evaluated_but_noted(tmp_path: Path) -> None:
    report = checked(tmp_path, "scores = Mul(s, zero)", given="scores = Mul(s, zero)")
    assert report.passed
    assert report.parts_db == {}
    (note,) = report.notes
    assert "part 'y[:, 4:6]' is 0 in all 4 samples" in note


def test_decisions_of_scores_beside_boxes_are_counted(tmp_path: Path) -> None:
    boxes, scores = checked(tmp_path, "scores = Identity(s)").outputs[0].parts
    assert boxes.decisions is None
    assert scores.decisions is not None
    assert (scores.decisions.kind, scores.decisions.agreement) == (DecisionKind.ABOVE_HALF, 1.0)
    lost = checked(tmp_path, "scores = Mul(s, zero)").outputs[0].parts[1].decisions
    assert lost is not None
    assert lost.agreement == 0.0
    assert lost.compared == scores.decisions.compared > 0


def count(scores: Scores, *pairs: tuple[list[list[float]], list[list[float]]]) -> Decisions | None:
    found = DecisionCount(scores)
    for expected, measured in pairs:
        found.add(np.array(expected, np.float32), np.array(measured, np.float32))
    return found.found()


def test_the_class_of_probabilities_is_their_highest() -> None:
    found = count(Scores("probabilities", 1), ([[0.6, 0.4]], [[0.55, 0.45]]), ([[0.6, 0.4]], [[0.45, 0.55]]))
    assert found == Decisions(DecisionKind.ARG_MAX, 0.5, 2)


def test_logits_that_always_choose_the_same_may_be_none() -> None:
    assert count(Scores("logits", 1), ([[5.0, 1.0]], [[5.0, 1.0]]), ([[4.0, 1.0]], [[5.0, 1.0]])) is None
    found = count(Scores("logits", 1), ([[5.0, 1.0]], [[5.0, 1.0]]), ([[4.0, 9.0]], [[5.0, 1.0]]))
    assert found == Decisions(DecisionKind.ARG_MAX, 0.5, 2)


@pytest.mark.parametrize("kind", ["probabilities", "logits"])
def test_an_axis_beyond_the_rank_decides_nothing(kind: Any) -> None:
    """A file may declare one dimension more than its output has."""
    assert count(Scores(kind, 2), ([[0.6, 0.4]], [[0.55, 0.45]]), ([[0.4, 0.6]], [[0.45, 0.55]])) is None


def test_single_values_are_decided_by_a_threshold() -> None:
    pairs = ([[0.9]], [[0.6]]), ([[0.1]], [[0.6]]), ([[0.2]], [[0.0]])
    assert count(Scores("independent"), *pairs) == Decisions(DecisionKind.BINARY, 2 / 3, 3)
    assert count(Scores("logits", 1), ([[3.0]], [[1.0]]), ([[-3.0]], [[1.0]])) == Decisions(DecisionKind.BINARY, 0.5, 2)
    assert count(Scores("logits", 1), ([[3.0]], [[1.0]]), ([[4.0]], [[5.0]])) is None


def test_scores_are_held_against_half_of_the_highest_of_their_sample() -> None:
    small = ([[0.02, 0.015, 0.001]], [[0.02, 0.0, 0.0]])
    assert count(Scores("independent"), small) == Decisions(DecisionKind.ABOVE_HALF, 0.5, 2)
    assert count(Scores("independent"), ([[0.0, 0.0]], [[0.0, 0.0]])) is None


def test_the_noise_of_single_samples_is_told() -> None:
    sums = ResultSums()
    for number, error in ((3, 0.1), (7, 0.1), (11, 1.0)):
        sums.add(number, np.full(4, 10.0), np.full(4, 10.0 + error))
    figures = sums.check("y", "y").samples
    assert figures is not None
    assert (figures.count, figures.worst) == (3, 11)
    assert figures.median_db == pytest.approx(40.0)
    assert figures.worst_db == pytest.approx(20.0)
    assert figures.worst_share == pytest.approx(1.0 / 1.02)


def test_samples_without_an_error_have_figures_too() -> None:
    sums = ResultSums()
    for number in range(2):
        sums.add(number, np.ones(4), np.ones(4))
    figures = sums.check("y", "y").samples
    assert figures is not None
    assert (figures.median_db, figures.worst, figures.worst_share) == (math.inf, 0, 0.0)


def test_what_is_nearly_constant_may_become_constant() -> None:
    """A number that hardly changes is rounded to one; that is no lost result."""
    total = SqnrAccumulator()
    total.add(np.array([10.0, 10.01, 9.99]), np.full(3, 10.0))
    assert not total.silent
    total.add(np.array([0.0]), np.array([10.0]))
    assert total.silent
    other = SqnrAccumulator()
    other.add(np.ones(1), np.zeros(1))
    assert not other.silent
    total.merge(other)
    assert not total.silent
