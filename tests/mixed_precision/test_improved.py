"""With an effort, a search ends with what `onnxq quantize` really gives, and fewer layers are restored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import onnxq
from onnxq.demo import load_data, model_path
from onnxq.errors import ConfigError
from onnxq.graph import Graph
from onnxq.mixed_precision import Found, Subject, restore_layers, search
from onnxq.mixed_precision.choices import configured
from onnxq.mixed_precision.files import write_found
from onnxq.mixed_precision.study import Study
from onnxq.ptq.method import State
from onnxq.ptq.search.evaluator import Score
from onnxq.ptq.search.schedule import USABLE

SubjectOf = Callable[..., Subject]

SLOW = ("smoothquant", "awq", "insert_smoothing", "high_bias_absorption", "range_setting")
EFFORT: dict[str, Any] = {"effort": 1, "skip_improvements": SLOW}
"""An effort of few steps, so that tests are fast."""
IMPROVEMENTS = (
    *("outlier_placement", "cross_layer_equalization", "outlier_placement:layers=yes"),
    *USABLE.methods,
    *("weight_scale_search", "bias_correction"),
)
WANTED: dict[str, Any] = {"bits": (8, 4), "budget": "60%", "evaluations": 3}


@pytest.fixture(scope="module")
def found(digits: SubjectOf) -> Found:
    return search(digits("academic", config=EFFORT), **WANTED)


def of_quantize(subject: Subject, config: Any, out: Path) -> Score:
    """The score of the model that `onnxq.quantize` makes of a configuration, on the samples of the search."""
    data = load_data().calibration[:16]
    result = onnxq.quantize(model_path(), backend=subject.backend, data=data, config=config, out=out)
    changed = out / "model_float.onnx"
    study = Study(subject)
    graph = Graph.load(changed) if changed.exists() else study.graph
    return study.evaluator(State(graph, result.plan, result.qparams))


def test_every_point_of_the_front_is_improved_and_the_search_is_decided_without(
    found: Found, digits: SubjectOf
) -> None:
    plain = search(digits("academic"), **WANTED)
    before = {tuple(point.bits.items()): point for point in plain.points}
    assert [(point.bits, point.costs, point.origin) for point in found.points] == [
        (point.bits, point.costs, point.origin) for point in plain.points
    ]
    assert found.losses == plain.losses
    for point in found.front:
        assert point.calibrated == before[tuple(point.bits.items())].score
    assert any(point.score.value > point.calibrated.value + 1 for point in found.front if point.calibrated)
    assert found.chosen in found.front
    assert (plain.improvements, found.improvements) == (
        (),
        IMPROVEMENTS,
    )
    values = [point.score.value for point in found.front]
    assert values == sorted(values)


def test_the_front_says_what_quantize_makes_of_the_written_configuration(
    found: Found, digits: SubjectOf, tmp_path: Path
) -> None:
    file, *_ = write_found(tmp_path / "found", found, "academic")
    written = onnxq.read_config(file)
    assert (written.effort, "effort" in written.model_fields_set) == (1, True)
    assert of_quantize(digits("academic"), file, tmp_path / "out") == found.chosen.score
    base = onnxq.read_config(EFFORT)
    for number, point in enumerate(found.front):
        config = configured(base, point.bits, found.variables)
        assert of_quantize(digits("academic"), config, tmp_path / str(number)) == point.score


def test_a_search_goes_on_and_keeps_scores_of_other_efforts_apart(digits: SubjectOf, tmp_path: Path) -> None:
    def stop(stage: str, done: int, total: int | None) -> None:
        if stage == "improve: bias_correction":
            raise KeyboardInterrupt

    wanted: dict[str, Any] = {**WANTED, "evaluations": 2}
    with pytest.raises(KeyboardInterrupt):
        search(digits("academic", config=EFFORT, cache=tmp_path, progress=stop), **wanted)
    first = search(digits("academic", config=EFFORT, cache=tmp_path), **wanted)
    assert first.evaluations["run"] == len([point for point in first.points if point.calibrated is not None])
    again = search(digits("academic", config=EFFORT, cache=tmp_path), **wanted)
    assert again.evaluations["run"] == 0
    assert (again.points, again.front) == (first.points, first.front)
    plain = search(digits("academic", config={"effort": 0}, cache=tmp_path), **wanted)
    assert plain.evaluations["run"] == 0
    assert [point.score for point in plain.points] == [point.calibrated or point.score for point in first.points]
    other = search(digits("academic", config={"improvements": ["weight_scale_search"]}, cache=tmp_path), **wanted)
    assert other.evaluations["run"] == len(first.front)


def test_the_metric_holds_after_improvements_at_less_cost(digits: SubjectOf, known: Path) -> None:
    wanted: dict[str, Any] = {"bits": (8, 4, 2), "reach": 20.0, "evaluations": 6}
    plain = search(digits("academic", cache=known), **wanted)
    better = search(
        digits("academic", cache=known, config={"improvements": ["cross_layer_equalization", "weight_scale_search"]}),
        **wanted,
    )
    assert better.chosen.score.value >= 20.0
    assert better.chosen.calibrated is not None
    assert better.chosen.calibrated.value < 20.0
    assert better.chosen.costs.bytes < plain.chosen.costs.bytes


def test_fewer_layers_are_restored_where_improvements_help(digits: SubjectOf, tmp_path: Path) -> None:
    coarse = {"weight": {"bits": 3, "per_channel": False}}
    plain = restore_layers(digits(config=coarse), reach=14.0)
    better = restore_layers(digits(config={**coarse, **EFFORT}, cache=tmp_path / "cache"), reach=14.0)
    assert better.steps[0].score.value > plain.steps[0].score.value + 1.0
    assert len(better.restored) < len(plain.restored)
    assert better.chosen.score.value >= 14.0
    assert of_quantize(digits(), better.config, tmp_path / "out") == better.chosen.score
    again = restore_layers(digits(config={**coarse, **EFFORT}, cache=tmp_path / "cache"), reach=14.0)
    assert (again.steps, again.evaluations["run"]) == (better.steps, 0)
    assert again.to_json()["improvements"] == list(IMPROVEMENTS)


def test_too_few_samples_to_improve_with_are_a_note(digits: SubjectOf) -> None:
    result = search(digits("academic", data=load_data().calibration[:2], config={"effort": 1}), **WANTED)
    assert any("nothing was tried to improve the model" in note for note in result.notes)
    assert all(point.calibrated == point.score for point in result.front)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"effort": 4}, "effort.*must be 3 or less"),
        ({"improvements": ["gptqq"]}, "gptqq"),
        ({"effort": 1, "skip_improvements": ["nothing"]}, "there is no improvement 'nothing'"),
    ],
)
def test_wrong_wishes_are_refused_before_anything_is_evaluated(
    digits: SubjectOf, config: dict[str, Any], message: str
) -> None:
    stages: list[str] = []
    subject = digits("academic", config=config, progress=lambda stage, done, total: stages.append(stage))
    for run in (lambda: search(subject, **WANTED), lambda: restore_layers(subject, reach=20.0)):
        with pytest.raises(ConfigError, match=message):
            run()
    assert "calibrate" not in stages
