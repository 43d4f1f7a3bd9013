"""The stage of the pipeline: what is refused before anything runs, what is measured on, and whose files are removed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxq
from onnxq.demo import load_data, model_path
from onnxq.errors import ConfigError
from onnxq.ptq.method import method_name, read_improvement
from onnxq.ptq.search.evaluator import Evaluator
from onnxq.ptq.search.schedule import schedule_of
from onnxq.ptq.search.stage import improve_calibrated, wanted_schedule
from onnxq.session.session import open_session

SAMPLES = [{"image": image[None]} for image in load_data().calibration[:64]]
FOUR_BITS = "academic:w_bits=4,a_bits=4"


def run(out: Path, *, samples: int = 32, **config: Any) -> onnxq.Result:
    return onnxq.quantize(model_path(), backend=FOUR_BITS, data=SAMPLES[:samples], out=out, config=config)


def test_the_figure_of_the_report_is_that_of_samples_which_nothing_was_fitted_to(tmp_path: Path) -> None:
    result = run(tmp_path / "out", samples=64, improvements=["gptq"])
    held = [feed for number, feed in enumerate(SAMPLES) if number % 4 == 3]
    evaluator = Evaluator(onnxq.prepare(model_path(), FOUR_BITS).graph, onnxq.get_backend(FOUR_BITS), held)
    assert result.report["sqnr_db"]["logits"] == pytest.approx(
        evaluator.of_graph(onnxq.load(result.model)).value, abs=0.2
    )
    assert result.report["improvements"]["after"] == pytest.approx(result.report["sqnr_db"]["logits"], abs=0.2)


@pytest.mark.parametrize(
    "wrong",
    ["adaround:iterations=-5", "adaround:batch=0", "adaquant:lr=-1", "brecq:block=0", "qdrop:drop=2"],
)
def test_wrong_arguments_are_refused_before_anything_is_fitted(wrong: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=wrong.partition(":")[0]):
        run(tmp_path / "out", improvements=["adaround:iterations=100000", wrong])
    assert not (tmp_path / "out").exists()


def test_files_of_the_user_stay_beside_the_files_of_unfinished_runs(tmp_path: Path) -> None:
    folder = tmp_path / "out" / "improving"
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("mine")
    unfinished = folder / f"adaround-000-{'0' * 16}.npz"
    unfinished.write_bytes(b"")
    run(tmp_path / "out", effort=0)
    assert unfinished.exists()
    run(tmp_path / "out", improvements=["adaround:iterations=2"])
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


def test_values_of_a_killed_run_are_removed_by_the_next_one_whatever_its_effort(tmp_path: Path) -> None:
    (tmp_path / "out" / "improving" / "activations-abcd1234").mkdir(parents=True)
    run(tmp_path / "out", effort=0)
    assert not (tmp_path / "out" / "improving").exists()


def test_named_improvements_are_not_left_out_without_a_word(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="4 samples or more"):
        run(tmp_path / "out", samples=3, improvements=["gptq"])
    with pytest.raises(ConfigError, match="asked for by name, and to be left out"):
        run(tmp_path / "out", improvements=["gptq:act_order=no"], skip_improvements=["gptq"])


def test_other_names_of_a_method_are_taken_wherever_its_own_is() -> None:
    config = onnxq.Config(backend="tensorrt", skip_improvements=["cross_layer", "weight_scale_search", "ranges"])
    tried = {method_name(name) for name in wanted_schedule(config).names()}
    assert tried.isdisjoint({"cross_layer_equalization", "weight_scale_search", "range_setting"})
    for written, listed in {"refit:alpha=0": "gptaq:alpha=0.0", "ranges:mse": "range_setting:observer=mse"}.items():
        assert str(read_improvement(written)) == listed
    both = onnxq.Config(
        backend="tensorrt", improvements=["cross_layer"], skip_improvements=["cross_layer_equalization"]
    )
    with pytest.raises(ConfigError, match="asked for by name, and to be left out"):
        wanted_schedule(both)


def test_an_accuracy_that_was_asked_for_and_not_measured_is_a_warning(tmp_path: Path) -> None:
    result = onnxq.quantize(
        model_path(), backend="weight_only:ops=all", out=tmp_path / "out", config={"minimum_sqnr_db": 20.0}
    )
    assert any("20 dB" in line for line in result.report["warnings"])


@pytest.mark.parametrize("effort", [1, 2])
@pytest.mark.parametrize("beside", [{}, {"improvements": ["hqq"]}])
def test_an_effort_that_was_asked_for_and_had_no_data_is_a_warning(
    effort: int, beside: dict[str, Any], tmp_path: Path
) -> None:
    config = {"effort": effort, **beside}
    result = onnxq.quantize(model_path(), backend="weight_only", out=tmp_path / "out", config=config)
    (warning,) = result.report["warnings"]
    assert warning.startswith(f"effort: effort {effort} has changed nothing: there is no data")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["effort"] == effort


@pytest.mark.parametrize("config", [{}, {"effort": 0}, {"improvements": ["hqq"]}])
def test_an_effort_that_nobody_asked_for_or_that_is_replaced_needs_none(config: dict[str, Any], tmp_path: Path) -> None:
    result = onnxq.quantize(model_path(), backend="weight_only", out=tmp_path / "out", config=config)
    assert result.report["warnings"] == []
    again = onnxq.quantize(model_path(), config=tmp_path / "out" / "config.json", out=tmp_path / "again")
    assert again.report["warnings"] == []


def test_known_metrics_know_what_is_best() -> None:
    graph = onnxq.load(model_path())
    with pytest.raises(ConfigError, match="sqnr_db is best where it is largest"):
        Evaluator(graph, onnxq.get_backend("tensorrt"), SAMPLES[:2], lower_is_better=True)


def leave(outputs: dict[str, np.ndarray], labels: np.ndarray | None) -> float:
    raise SystemExit(7)


def test_a_metric_that_ends_the_process_is_an_error_like_others() -> None:
    with pytest.raises(ConfigError, match="metric 'leave' failed: SystemExit"):
        Evaluator(onnxq.load(model_path()), onnxq.get_backend("tensorrt"), SAMPLES[:2], metric=leave).of_float()


def test_names_beside_an_effort_stand_in_their_place_among_its_methods() -> None:
    def names(**given: Any) -> list[str]:
        return wanted_schedule(onnxq.config.read_config(given)).names()

    alone = ["cross_layer:steps=5", "bias_correction:rounds=1"]
    assert names(improvements=alone) == alone
    assert names(improvements=alone, effort=0) == alone
    both = names(improvements=alone, effort=1)
    usual = names(effort=1)
    assert both == [
        {"cross_layer_equalization": alone[0], "bias_correction": alone[1]}.get(name, name) for name in usual
    ]


def test_names_that_an_effort_has_not_come_behind_it() -> None:
    def schedule(effort: int) -> Any:
        return wanted_schedule(
            onnxq.config.read_config({"improvements": ["adaquant:epochs=2", "hqq"], "effort": effort})
        )

    first = schedule(1)
    assert [stage.methods for stage in first.stages][-2:] == [("adaquant:epochs=2",), ("hqq",)]
    assert first.finish == ("bias_correction",)
    second = schedule(2)
    assert second.roundings[-1].methods[-1] == "adaquant:epochs=2"  # a weight that was rounded once stays so
    assert second.stages[-1].methods == ("hqq",)
    third = schedule(3)
    assert "adaquant:epochs=2" in third.roundings[-1].methods
    assert "adaquant" not in third.names()


def test_a_file_of_named_improvements_is_run_again_as_it_was(tmp_path: Path) -> None:
    first = run(tmp_path / "out", improvements=["weight_scale_search"])
    again = onnxq.quantize(
        model_path(), data=SAMPLES[:32], out=tmp_path / "again", config=tmp_path / "out" / "config.json"
    )
    assert [step["name"] for step in again.report["improvements"]["steps"]] == ["weight_scale_search"]
    assert again.model.read_bytes() == first.model.read_bytes()


def test_weights_of_few_bits_are_tried_everything_on() -> None:
    quick, whole = (set(schedule_of(1, few_bits=few).names()) for few in (False, True))
    assert quick < whole
    assert "awq" in whole - quick
    assert set(schedule_of(2).names()) >= whole
    data = {"image": load_data().calibration[:16]}
    for bits, expected in ((4, whole), (8, quick)):
        session = open_session(model_path(), backend="tensorrt", data=data, config={"weight": {"bits": bits}})
        outcome, _ = improve_calibrated(session, session.calibrated().state)
        assert outcome is not None
        assert {method_name(step.name) for step in outcome.steps} <= {method_name(name) for name in expected}
        assert any(step.name == "awq" for step in outcome.steps) == (bits == 4)
