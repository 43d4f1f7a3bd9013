"""A file that is slower than float in onnxruntime is never delivered without saying so; times are made up."""

from __future__ import annotations

import numpy as np
import pytest

import onnxq
from onnxq.pipeline.speed import is_slower, measured_speed
from onnxq.runtime.timing import Pace
from tests.latency.test_tune import RNG, SHAPE, network

SLOW = Pace(1.0, 1.5, (0.66, 0.67, 0.67, 0.68))
FAST = Pace(1.5, 1.0, (1.5, 1.5, 1.5))
DATA = [{"x": RNG.normal(0, 1, SHAPE).astype(np.float32)} for _ in range(4)]
CONFIG = {"effort": 0, "report": "no"}


def test_a_slow_file_is_a_warning_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxq.pipeline.written.measured_speed", lambda *given: SLOW)
    report = onnxq.quantize(network(), backend="onnxruntime", data=DATA, config=CONFIG).report
    assert report["speed"]["times_as_fast"] == 0.67
    (line,) = report["kinds"]["slower_than_float"]
    assert "slower than the float model: 1.50 ms instead of 1.00 ms" in line
    assert "--for latency" in line
    assert line in report["warnings"]


def test_a_fast_file_has_its_figure_and_no_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxq.pipeline.written.measured_speed", lambda *given: FAST)
    report = onnxq.quantize(network(), backend="onnxruntime", data=DATA, config=CONFIG).report
    assert report["speed"]["times_as_fast"] == 1.5
    assert "slower_than_float" not in report["kinds"]


@pytest.mark.parametrize(
    ("pace", "slower"),
    [
        (SLOW, True),
        (FAST, False),
        (Pace(1.0, 1.02, (0.98, 0.98, 0.98)), False),  # within the noise
        (Pace(1.0, 1.2, (0.5, 0.8, 1.4, 1.5)), False),  # the rounds do not agree
        (Pace(0.02, 0.04, (0.5, 0.5, 0.5)), False),  # the overhead of a call
    ],
)
def test_slower_is_what_rounds_agree_about(pace: Pace, *, slower: bool) -> None:
    assert is_slower(pace) is slower


def test_only_files_that_onnxruntime_runs_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxq.pipeline.written.measured_speed", measured_speed)
    speeds = {
        target: onnxq.quantize(network(), backend=target, data=DATA, config=CONFIG).report["speed"]
        for target in ("onnxruntime", "tensorrt")
    }
    assert speeds["tensorrt"] is None
    assert speeds["onnxruntime"]["rounds"] >= 1
    assert min(speeds["onnxruntime"]["float_ms"], speeds["onnxruntime"]["file_ms"]) > 0


def test_a_file_too_large_for_the_optimizer_is_not_measured_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr("onnxq.pipeline.written.measured_speed", lambda *given: asked.append(given))
    for module in ("onnxq.pipeline.written", "onnxq.verify.checks"):
        monkeypatch.setattr(f"{module}.FULL_OPTIMIZATION_NODES", 3)
    report = onnxq.quantize(network(), backend="onnxruntime", data=DATA, config=CONFIG).report
    assert report["speed"] is None
    assert asked == []
    assert any("the speed of the file was not measured" in note for note in report["notes"])
