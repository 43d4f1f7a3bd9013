"""A study of a model with a loop: statistics of two runs beside other tensors of its body are never put together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onnxq.mixed_precision.study import Study
from onnxq.mixed_precision.subject import Subject
from onnxq.types import Placement
from tests.calibrate.test_pinned_beyond import graph_with_loop, observing, samples
from tests.runtime.small_graphs import bits


def gathered(study: Study, *steps: list[Placement]) -> dict[str, Any]:
    for leaders in steps:
        study._gather(leaders)
    held = study._gathered.statistics
    return bits({name: list(kinds.values()) for name, kinds in held.items()})


@pytest.mark.parametrize("cached", [False, True])
def test_what_is_added_later_has_the_bits_of_one_run(cached: bool, tmp_path: Path) -> None:
    def study(name: str) -> Study:
        cache = tmp_path / name if cached else None
        return Study(Subject(graph_with_loop(), "onnxruntime", samples(), cache=cache))

    first, later = observing("before", "sum"), observing("next", "last")
    together = study("together")
    expected = gathered(together, [*first, *later])
    stepwise = study("stepwise")
    assert gathered(stepwise, first, later) == expected
    assert stepwise._gathered.beyond == together._gathered.beyond == ("next", "sum")
