"""search: better than the same bits everywhere at the same cost, exact, repeatable, going on where it was cut off."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import onnxq
from onnxq.demo import load_data, model_path
from onnxq.errors import ConfigError, UnsupportedError
from onnxq.mixed_precision import Found, Subject, search
from onnxq.mixed_precision.files import write_found
from onnxq.mixed_precision.study import Study, noise
from onnxq.ptq.method import State

SubjectOf = Callable[..., Subject]


@pytest.fixture(scope="module")
def found(digits: SubjectOf) -> Found:
    return search(digits("academic"), bits=(8, 4, 3), what="both", budget="BOPS:25%", evaluations=20)


def uniform(result: Found, bits: int) -> Any:
    return next(point for point in result.points if set(point.bits.values()) == {bits})


def test_mixed_bits_beat_the_same_bits_everywhere_at_the_same_bit_operations(found: Found) -> None:
    """25 % of the bit operations of 8 bits are those of 4 bits everywhere: measured 3 to 5 dB better."""
    four = uniform(found, 4)
    assert found.chosen.costs.bit_operations <= four.costs.bit_operations
    assert found.chosen.score.value > four.score.value + 2.0


def test_mixed_bits_beat_the_same_bits_everywhere_at_the_same_size_of_weights(digits: SubjectOf, known: Path) -> None:
    """Weights of 2 to 8 bits that are 5 bits on average, against 5 bits everywhere."""
    result = search(digits("academic", cache=known), bits=(8, 6, 5, 4), budget="5bits", evaluations=12)
    five = uniform(result, 5)
    assert result.chosen.costs.bits <= five.costs.bits
    assert result.chosen.score.value > five.score.value + 1.0


def test_the_front_is_monotone_and_nothing_beats_it(found: Found) -> None:
    costs = [found.cost(point) for point in found.front]
    values = [point.score.value for point in found.front]
    assert costs == sorted(set(costs))
    assert values == sorted(values)
    assert found.chosen in found.front
    for point in found.points:
        assert any(
            found.cost(best) <= found.cost(point) and best.score.goodness >= point.score.goodness
            for best in found.front
        )


def test_the_configuration_gives_the_same_model_to_quantize(found: Found, digits: SubjectOf, tmp_path: Path) -> None:
    config = {**found.config.model_dump(mode="json", exclude_defaults=True), "effort": 0}
    data = load_data().calibration[:16]
    result = onnxq.quantize(model_path(), backend="academic", data=data, config=config, out=tmp_path)
    for name, bits in found.chosen.bits.items():
        assert result.plan[name].spec.bits == bits
    study = Study(digits("academic"))
    assert study.score(State(study.graph, result.plan, result.qparams)) == found.chosen.score


def test_the_same_search_gives_the_same_result(found: Found, digits: SubjectOf) -> None:
    again = search(digits("academic"), bits=(3, 4, 8), what="both", budget="BOPS:25%", evaluations=20)
    assert again.to_json() == found.to_json()


@pytest.mark.parametrize("stage", ["sensitivity", "search"])
def test_a_search_that_was_cut_off_goes_on(digits: SubjectOf, tmp_path: Path, stage: str) -> None:
    wanted: dict[str, Any] = {"bits": (8, 4), "budget": "70%", "evaluations": 8}

    def interrupt(now: str, done: int, total: int | None) -> None:
        if now == stage and done == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(digits(cache=tmp_path, progress=interrupt), **wanted)
    resumed = search(digits(cache=tmp_path), **wanted)
    whole = search(digits(), **wanted)
    assert resumed.points == whole.points
    assert resumed.chosen == whole.chosen
    assert resumed.evaluations["run"] <= whole.evaluations["run"] - 6
    assert sum(resumed.evaluations.values()) == whole.evaluations["run"]
    assert search(digits(cache=tmp_path), **wanted).evaluations["run"] == 0


def test_more_evaluations_are_never_worse(digits: SubjectOf, known: Path) -> None:
    values = [
        search(digits("academic", cache=known), bits=(8, 4, 2), budget="3bits", evaluations=number).chosen.score.value
        for number in (1, 6, 16)
    ]
    assert values == sorted(values)


@pytest.mark.parametrize("metric", ["accuracy", "kl"])
def test_metrics_with_few_values_are_told_apart_by_noise(digits: SubjectOf, metric: str) -> None:
    result = search(digits("academic", metric=metric), bits=(8, 4), budget="6bits", evaluations=6)
    inside = [point for point in result.points if point.costs.mean_bits <= 6]
    best = max(inside, key=lambda point: (point.score.goodness, -noise(point.score)))
    assert result.chosen == best


def test_the_least_cost_at_which_the_metric_holds(digits: SubjectOf, known: Path) -> None:
    result = search(digits("academic", cache=known), bits=(8, 4, 2), reach=20.0, evaluations=16)
    assert result.chosen.score.value >= 20.0
    assert all(point.costs.bytes >= result.chosen.costs.bytes for point in result.points if point.score.value >= 20.0)
    eight = uniform(result, 8)
    assert result.chosen.costs.bytes < 0.75 * eight.costs.bytes


def test_what_the_user_has_fixed_stays(digits: SubjectOf) -> None:
    config = {"tensor": {"head.conv.weight": {"bits": 8}}, "node": {"stem.conv": {"skip": True}}}
    result = search(digits("academic", config=config), bits=(8, 4), budget="90%", evaluations=4)
    names = {variable.name: variable.bits for variable in result.variables}
    assert names["head.conv.weight"] == (8,)
    assert "stem.conv.weight" not in names
    assert any("'head.conv.weight' cannot have 4 bits: tensor.head.conv.weight.bits says 8" in n for n in result.notes)


def test_bits_that_only_weights_can_have_are_chosen_for_weights_only(digits: SubjectOf) -> None:
    result = search(digits("tensorrt"), bits=(8, 4), what="both", budget="BOPS:80%", evaluations=4)
    assert {(v.kind, v.bits) for v in result.variables} == {("weight", (8, 4)), ("activation", (8,))}
    assert any("tensorrt takes int4 for weights only" in note for note in result.notes)


def test_files_for_people_and_programs(found: Found, tmp_path: Path) -> None:
    files = write_found(tmp_path / "found", found, "academic")
    assert [path.name for path in files] == ["config.json", "front.json", "front.svg"]
    assert onnxq.read_config(files[0]).backend == "academic"
    picture = ElementTree.parse(files[2]).getroot()
    circles = [item for item in picture.iter() if item.tag.endswith("circle")]
    assert len(circles) == len(found.points) + len(found.front) + 1
    assert "BOPS:25%" in (picture[0].text or "")


@pytest.mark.parametrize(
    ("backend", "wanted", "message"),
    [
        ("tensorrt", {"bits": (8, 2), "budget": "60%"}, r"tensorrt cannot take 2 bits .*\[dtype\].*int2 is stored as"),
        ("vitis", {"bits": (8, 4), "budget": "60%"}, r"vitis cannot take 4 bits .*\[dtype\].*takes int8"),
        ("academic", {"bits": (8, 4), "budget": "20%"}, "the least that these bits need is 30,344 bytes"),
        ("academic", {"bits": (8, 4), "reach": 90.0}, "no configuration with these bits reaches sqnr_db at least 90"),
    ],
)
def test_what_the_target_or_the_budget_forbids_is_refused(
    digits: SubjectOf, backend: str, wanted: dict[str, Any], message: str
) -> None:
    with pytest.raises(UnsupportedError, match=message):
        search(digits(backend), **wanted, evaluations=4)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"bits": (8,), "budget": "60%"}, "two or more numbers of bits"),
        ({"bits": (8, 64), "budget": "60%"}, "from 1 to 16, got 8, 64"),
        ({"bits": (8, 4)}, "say what to search for"),
        ({"bits": (8, 4), "budget": "60%", "hold": 0.99}, "say what to search for"),
        ({"bits": (8, 4), "budget": "60%", "what": "activations"}, "give a budget such as BOPS:60%"),
        ({"bits": (8, 4), "hold": 0.99}, "a fraction of sqnr_db = 100 says nothing"),
        ({"bits": (8, 4), "reach": 1.0, "max_drop": 1.0}, "one of --hold, --max-drop and --reach"),
        ({"bits": (8, 4), "max_drop": -1.0}, "--max-drop is 0 or more"),
    ],
)
def test_wrong_wishes_are_named(digits: SubjectOf, wanted: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        search(digits("academic"), **wanted)
