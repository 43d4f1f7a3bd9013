"""What the command line says about the steps that were tried for accuracy."""

from __future__ import annotations

from typing import Any

from onnxq.pipeline.summary import improvement_lines


def steps(**applied: list[bool]) -> dict[str, Any]:
    tried = [{"name": name, "applied": one} for name, each in applied.items() for one in each]
    return {"before": 12.0, "after": 20.0, "evaluated_on": 8, "levels": [], "steps": tried}


def test_a_step_that_was_tried_in_several_places_is_named_once() -> None:
    lines = improvement_lines(steps(cross_layer=[True], ranges=[False, False], bias_correction=[False, True]))
    assert lines == [
        "12.0 dB -> 20.0 dB on 8 samples that nothing was fitted to",
        "applied: cross_layer, bias_correction",
        "tried without effect: ranges",
    ]


def test_nothing_is_said_to_be_applied_where_nothing_helped() -> None:
    assert improvement_lines(steps(ranges=[False]))[1:] == ["nothing that was tried helped"]
    assert improvement_lines(None) == []
