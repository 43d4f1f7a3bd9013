"""hold: the metric is met with few layers restored, each step is recorded, and what cannot be had is said."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxq
from onnxq.config.changes import merged
from onnxq.demo import load_data, model_path
from onnxq.errors import ConfigError, UnsupportedError
from onnxq.graph import Graph
from onnxq.mixed_precision import Subject, restore_layers
from onnxq.mixed_precision.parts import layers
from onnxq.mixed_precision.study import Study
from tests.golden_graphs import GOLDEN
from tests.mixed_precision.conftest import SENSITIVE

SubjectOf = Callable[..., Subject]

COARSE = {"weight": {"bits": 3, "per_channel": False}}


def naive(subject: Subject, least: float) -> int:
    """How many layers it takes in the order of the model."""
    study = Study(subject)
    names = [part.name for part in layers(study.graph, study.plan())]
    for number in range(len(names) + 1):
        changes = {("node", name, "skip"): True for name in names[:number]}
        state = study.calibrated(study.plan(merged(study.config, changes, "test")))
        if study.score(state).goodness >= least:
            return number
    raise AssertionError("the metric holds with everything restored")


def test_fewer_layers_than_in_the_order_of_the_model(digits: SubjectOf, with_outliers: Graph) -> None:
    subject = digits("onnxruntime", model=with_outliers, config={"weight": {"per_channel": False}})
    result = restore_layers(subject, reach=25.0)
    assert result.restored[0] == SENSITIVE
    assert result.chosen.score.value >= 25.0
    assert len(result.restored) < naive(subject, 25.0)


@pytest.mark.parametrize("demand", [{"hold": 0.98}, {"max_drop": 0.03}, {"reach": 0.96}], ids=str)
def test_accuracy_holds_with_as_few_layers_as_single_steps_find(digits: SubjectOf, demand: dict[str, float]) -> None:
    subject = digits("onnxruntime", config=COARSE, metric="accuracy")
    result = restore_layers(subject, **demand)
    first, last = result.steps[0], result.chosen
    least = {"hold": 0.98 * result.of_float.value, "max_drop": result.of_float.value - 0.03, "reach": 0.96}
    assert (first.restored, first.holds) == ((), False)
    assert last.score.value >= least[next(iter(demand))] - 1e-9
    assert 0 < len(result.restored) < result.layers
    smaller = [step for step in result.steps if len(step.restored) == len(result.restored) - 1]
    assert smaller
    assert not any(step.holds for step in smaller)  # each of the layers is needed
    again = restore_layers(subject, **demand)
    assert again.to_json() == result.to_json()


def test_a_model_that_holds_as_it_is_stays(digits: SubjectOf) -> None:
    result = restore_layers(digits(metric="accuracy"), hold=0.9)
    assert result.restored == ()
    with pytest.warns(DeprecationWarning, match="Held.put_back is now Held.restored"):
        assert result.put_back == ()
    assert len(result.steps) == 1
    assert result.evaluations["run"] == 1
    assert "node" not in result.config.model_dump(exclude_defaults=True)


def test_sixteen_bits_instead_of_float(digits: SubjectOf, tmp_path: Path) -> None:
    result = restore_layers(digits(), reach=40.0, fallback="16")
    assert 0 < len(result.restored) < result.layers
    config = {**result.config.model_dump(mode="json", exclude_defaults=True), "effort": 0}
    data = load_data().calibration[:16]
    written = onnxq.quantize(model_path(), backend="onnxruntime", data=data, config=config, out=tmp_path)
    for name in result.restored:
        assert written.plan[f"{name}.weight"].spec.bits == 16
    assert not any(node in written.plan.left_float for node in result.restored)


def wrong(outputs: Mapping[str, np.ndarray], labels: np.ndarray) -> float:
    return float((outputs["logits"].argmax(axis=1) != labels).mean())


def test_a_metric_of_the_users_own_goes_on_after_a_stop(digits: SubjectOf, tmp_path: Path) -> None:
    given: dict[str, Any] = {"config": COARSE, "metric": wrong, "best_by": "min", "cache": tmp_path}

    def interrupt(stage: str, done: int, total: int | None) -> None:
        if stage == "hold" and done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        restore_layers(digits(**given, progress=interrupt), max_drop=0.03)
    result = restore_layers(digits(**given), max_drop=0.03)
    fresh = restore_layers(digits(**{**given, "cache": None}), max_drop=0.03)
    assert result.steps == fresh.steps
    assert result.evaluations["run"] < fresh.evaluations["run"]
    assert result.chosen.score.value <= result.of_float.value + 0.03
    assert result.demand.startswith("wrong at most")


@pytest.mark.parametrize(
    ("backend", "change", "demand", "kind", "message"),
    [
        ("tensorrt", {}, {"reach": 40.0, "fallback": "16"}, UnsupportedError, r"16 bits: \[dtype\].*--fallback float"),
        ("weight_only", {}, {"reach": 60.0, "fallback": "16"}, UnsupportedError, "weight_only cannot put layers back"),
        ("onnxruntime", {}, {"reach": 99.9, "fallback": "16"}, UnsupportedError, "with all 9 layers restored to 16"),
        ("onnxruntime", {}, {"reach": 101.0}, ConfigError, "the float model itself has 100"),
        ("onnxruntime", {}, {"hold": 0.99}, ConfigError, "says nothing: give --reach"),
        ("onnxruntime", {"metric": "accuracy"}, {"hold": 1.5}, ConfigError, "above 0 and at most 1, got 1.5"),
        ("onnxruntime", {}, {}, ConfigError, "one of --hold, --max-drop and --reach"),
        ("onnxruntime", {}, {"reach": 30.0, "fallback": "8"}, ConfigError, "16 or float, got '8'"),
    ],
)
def test_what_cannot_be_had_is_said(
    digits: SubjectOf, backend: str, change: dict[str, Any], demand: Any, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        restore_layers(digits(backend, **change), **demand)


@pytest.mark.parametrize("backend", ["vitis", "qnn", "sophgo_bm1688", "tensorrt", "openvino", "espdl"])
@pytest.mark.parametrize("name", ["residual", "transformer", "if_body"])
def test_with_every_layer_restored_the_model_is_float(name: str, backend: str) -> None:
    """Also where inputs, or nodes that ran inside of a layer, would get quantizers of their own."""
    golden = GOLDEN[name]()
    result = restore_layers(Subject(golden.model, backend=backend, data=golden.samples[:2]), reach=99.9)
    assert result.chosen.score.value == 100.0


def test_a_metric_without_a_number_for_the_float_model_is_refused(digits: SubjectOf) -> None:
    with pytest.raises(ConfigError, match="gives no number for the float model"):
        Study(digits(metric=lambda outputs, labels: float("nan")))
