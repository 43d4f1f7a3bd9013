"""sensitivity: the layer that harms is found first; scores are kept, shared, repeatable and true."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxq.errors import ConfigError, DataError
from onnxq.graph import Graph
from onnxq.mixed_precision import Subject, sensitivity
from onnxq.mixed_precision.scores import FILE_NAME
from tests.mixed_precision.conftest import SENSITIVE

SubjectOf = Callable[..., Subject]

PER_TENSOR = {"weight": {"per_channel": False}}


def names(result: Any) -> list[str]:
    return [effect.name for effect in result.effects]


@pytest.mark.parametrize("mode", ["alone", "all_but"])
@pytest.mark.parametrize("metric", ["sqnr_db", "kl", "accuracy"])
def test_a_layer_with_outliers_comes_first(digits: SubjectOf, with_outliers: Graph, metric: str, mode: Any) -> None:
    config = {**PER_TENSOR, "node": {SENSITIVE: {"weight": {"bits": 4}}}}
    result = sensitivity(digits("academic", model=with_outliers, config=config, metric=metric), mode=mode)
    assert names(result)[0] == SENSITIVE
    worst, second = result.effects[:2]
    assert worst.loss > second.loss if mode == "alone" else worst.loss < min(second.loss, 0.0)
    if mode == "alone":
        assert worst.sqnr_db < second.sqnr_db - 10


def test_of_its_quantizers_the_weight_is_to_blame(digits: SubjectOf, with_outliers: Graph) -> None:
    subject = digits("onnxruntime", model=with_outliers, config=PER_TENSOR)
    result = sensitivity(subject, by="quantizer")
    assert names(result)[0] == f"{SENSITIVE}.weight"
    assert {effect.kind for effect in result.effects} == {"weight", "bias", "activation"}
    assert len(sensitivity(subject, by="quantizer", only="weights").effects) == 14


def test_the_noise_of_layers_alone_adds_up_to_about_that_of_all(digits: SubjectOf) -> None:
    result = sensitivity(digits("tensorrt"))
    summed = sum(10 ** (-effect.sqnr_db / 10) for effect in result.effects)
    whole = 10 ** (-result.quantized.sqnr_db["logits"] / 10)
    assert 0.4 < summed / whole < 2.5  # what layers do to each other is the rest


def test_each_part_is_run_once_and_never_again(digits: SubjectOf, tmp_path: Path) -> None:
    first = sensitivity(digits(cache=tmp_path))
    assert first.evaluations == {"run": len(first.effects) + 1, "known": 0}
    again = sensitivity(digits(cache=tmp_path))
    assert again.evaluations == {"run": 0, "known": len(first.effects) + 1}
    assert again.effects == first.effects
    assert again.to_json()["parts"] == first.to_json()["parts"]


def test_a_run_that_was_cut_off_goes_on(digits: SubjectOf, tmp_path: Path) -> None:
    def interrupt(stage: str, done: int, total: int | None) -> None:
        if stage == "sensitivity" and done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sensitivity(digits(cache=tmp_path, progress=interrupt))
    scores = tmp_path / FILE_NAME
    assert len(scores.read_text().splitlines()) == 5  # the whole plan and four layers
    with scores.open("a") as stream:
        stream.write('{"key": "torn')  # the process ended in the middle of a line
    result = sensitivity(digits(cache=tmp_path))
    assert result.evaluations == {"run": len(result.effects) + 1 - 5, "known": 5}
    assert result.effects == sensitivity(digits()).effects
    assert all(json.loads(line) for line in scores.read_text().splitlines())


@pytest.mark.parametrize(
    "change",
    [
        {"config": {"weight": {"bits": 7}}},
        {"config": {"observer": "percentile:99"}},
        {"metric": "kl"},
        {"samples": 20},
        {"evaluate_on": None},
        {"backend": "tensorrt"},
    ],
    ids=str,
)
def test_scores_of_something_else_are_not_used(digits: SubjectOf, tmp_path: Path, change: dict[str, Any]) -> None:
    sensitivity(digits(cache=tmp_path))
    result = sensitivity(digits(cache=tmp_path, **change))
    assert result.effects == sensitivity(digits(**change)).effects
    layers_without_weights = 2 if "weight" in change.get("config", {}) else 0
    assert result.evaluations["known"] == layers_without_weights


def test_a_damaged_cache_is_named(digits: SubjectOf, tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("no score\n")
    with pytest.raises(DataError, match=r"scores\.jsonl, line 1 is no score"):
        sensitivity(digits(cache=tmp_path))


def wrong(outputs: Mapping[str, np.ndarray], labels: np.ndarray) -> float:
    return float((outputs["logits"].argmax(axis=1) != labels).mean())


def test_a_metric_of_the_users_own_that_is_best_when_low(digits: SubjectOf, with_outliers: Graph) -> None:
    config = {"weight": {"per_channel": False, "bits": 6}}
    of_errors = sensitivity(digits("academic", model=with_outliers, config=config, metric=wrong, best_by="min"))
    accuracy = sensitivity(digits("academic", model=with_outliers, config=config, metric="accuracy"))
    assert of_errors.metric == "wrong"
    assert names(of_errors) == names(accuracy)
    for errors, right in zip(of_errors.effects, accuracy.effects, strict=True):
        assert errors.score.value == pytest.approx(1 - right.score.value)
        assert errors.loss == pytest.approx(right.loss)


def test_without_evaluation_data_calibration_samples_are_evaluated(digits: SubjectOf) -> None:
    result = sensitivity(digits(evaluate_on=None, metric="agreement"))
    assert result.samples == 16
    assert result.of_float.value == 1.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metric": "acuracy"}, "unknown metric 'acuracy'. Known: sqnr_db, kl, agreement, accuracy"),
        ({"metric": "accuracy", "evaluate_on": None}, "accuracy needs labels"),
        ({"metric": "no_such_module:function"}, "cannot import 'no_such_module'"),
        ({"config": {"skip": ["op:Conv", "op:Gemm", "op:Add", "op:GlobalAveragePool"]}}, "costs nothing"),
    ],
)
def test_what_cannot_be_measured_is_said(digits: SubjectOf, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        sensitivity(digits(**change))
