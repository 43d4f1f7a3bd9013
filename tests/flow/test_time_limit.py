"""A whole run under a limit of time: what is left out, what the files say of it, and how it is repeated.

The clock goes on when stages report, by what the test says that they take.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import onnxq
from onnxq.demo import load_data, model_path
from onnxq.errors import ConfigError
from onnxq.pipeline.artifacts import Result
from onnxq.pipeline.summary import limit_lines
from onnxq.progress import Tracker
from onnxq.ptq.search.costs import cost_of
from tests.progress.clock import FakeClock

SAMPLES = 16
SECONDS = {"load": 1.0, "calibrate": 1.0 / SAMPLES, "emit": 0.3, "verify": 1.0, "page": 0.5}


def quantized(out: Path, limit: str | float | None = None, backend: str = "onnxruntime", **config: object) -> Result:
    """The demo for a target, on a clock by which every step takes what is expected of it."""
    clock, running = FakeClock(), ""

    def pass_by(stage: str, done: int, total: int | None) -> None:
        nonlocal running
        kind, _, name = stage.partition(": ")
        if kind != "improve":
            clock.pass_by(SECONDS.get(stage, 0.0))
        elif stage != running or total is None:
            clock.pass_by(cost_of(name).rounds if name else 0.5)
        running = stage

    return onnxq.quantize(
        model_path(),
        backend=backend,
        data=load_data().calibration[:SAMPLES],
        config={"report": "quick", **config},
        out=out,
        progress=Tracker(pass_by, now=clock),
        time_limit=limit,
    )


@pytest.fixture(scope="module")
def tight(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """A run with time for some of the steps."""
    # Not onnxruntime: where its kernels saturate, files are checked once more, which takes time.
    return quantized(tmp_path_factory.mktemp("tight"), "10s", "tensorrt")


def test_what_does_not_fit_is_left_out_and_recorded(tight: Result) -> None:
    limit = tight.report["time_limit"]
    assert limit["seconds"] == 10
    assert limit["kept"]
    assert limit["taken"] <= 10
    steps = tight.report["improvements"]["steps"]
    cut = {number: step["name"] for number, step in enumerate(steps, 1) if step["reason"] == "time_limit"}
    tried = {step["name"] for step in steps if step["reason"] != "time_limit"}
    assert {one["step"]: one["what"] for one in limit["left_out"]} == cut
    assert "cross_layer_equalization" in cut.values()
    assert "bias_correction" in tried
    assert limit["would_take_seconds"] > 10


def test_the_summary_says_what_was_left_out(tight: Result) -> None:
    lines = limit_lines(tight.report["time_limit"])
    assert lines[0].endswith(" of 10 s")
    assert lines[1].startswith("left out: ")
    assert "cross_layer_equalization (about " in lines[1]
    assert lines[2].startswith("with all of it the run would take about ")


def test_its_configuration_repeats_it_without_a_clock(tight: Result, tmp_path: Path) -> None:
    folder = tight.model.parent
    config = json.loads((folder / "config.json").read_text())
    assert "time_limit" not in config
    assert config["skip_steps"] == [f"{one['step']}:{one['what']}" for one in tight.report["time_limit"]["left_out"]]
    again = onnxq.quantize(
        model_path(), data=load_data().calibration[:SAMPLES], config=folder / "config.json", out=tmp_path
    )
    assert again.model.read_bytes() == tight.model.read_bytes()
    assert "time_limit" not in again.report
    assert {step["reason"] for step in again.report["improvements"]["steps"]} >= {"skipped"}


def test_with_time_for_everything_the_files_are_those_without_a_limit(tmp_path: Path) -> None:
    free = quantized(tmp_path / "free")
    limited = quantized(tmp_path / "limited", "1h")
    assert limited.model.read_bytes() == free.model.read_bytes()
    assert limited.report["time_limit"]["left_out"] == []
    assert limit_lines(limited.report["time_limit"])[0].endswith("of 1 h, nothing was left out")
    configs = [json.loads((tmp_path / name / "config.json").read_text()) for name in ("free", "limited")]
    assert configs[0] == configs[1]


def test_a_limit_below_what_cannot_be_left_out_is_a_warning_and_the_files_are_there(tmp_path: Path) -> None:
    result = quantized(tmp_path / "out", 1)
    limit = result.report["time_limit"]
    assert not limit["kept"]
    assert result.model.exists()
    assert "improvements" not in result.report
    warning = next(text for text in result.report["warnings"] if "time limit" in text)
    assert warning.startswith("the time limit of 1.0 s was not kept, the run took ")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["effort"] == 0


def test_a_configuration_that_leaves_steps_out_can_be_repeated_where_there_was_time_for_none(tmp_path: Path) -> None:
    first = quantized(tmp_path / "first", 1, skip_steps=["2:insert_smoothing"])
    config = tmp_path / "first" / "config.json"
    assert "skip_steps" not in json.loads(config.read_text())
    again = onnxq.quantize(model_path(), data=load_data().calibration[:SAMPLES], config=config, out=tmp_path / "again")
    assert again.model.read_bytes() == first.model.read_bytes()


def test_a_low_result_is_not_diagnosed_without_time_for_it(tmp_path: Path) -> None:
    config = {"activation": {"bits": 4}, "weight": {"bits": 4}, "minimum_sqnr_db": -50.0, "name": "low"}
    result = quantized(tmp_path / "out", "6s", "academic", diagnose=True, effort=0, **config)
    assert [one["what"] for one in result.report["time_limit"]["left_out"]] == ["diagnosis"]
    assert "diagnosis" not in result.report
    assert any("for the cause, run 'onnxq diagnose'" in text for text in result.report["warnings"])
    assert json.loads((tmp_path / "out" / "config.json").read_text())["diagnose"] is False


@pytest.mark.parametrize("text", ["2 weeks", "-3", "0", "", True])
def test_what_is_no_time_is_refused_before_anything_is_done(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="time_limit"):
        quantized(tmp_path / "out", text)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", ["gptq", "0:gptq", "x:gptq", "3:"])
def test_a_step_to_leave_out_has_number_and_name(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="a step is its number and its name, such as 3:gptq"):
        quantized(tmp_path / "out", skip_steps=[text])
