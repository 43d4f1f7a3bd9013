"""Every target can be diagnosed: nothing in a diagnosis knows one by its name, or relies on a format of one."""

from __future__ import annotations

import json

import pytest

from onnxq.backends import BACKENDS, get_backend
from onnxq.bits import Subject
from onnxq.diagnose import Budget, diagnose
from onnxq.diagnose.text import summary_lines
from tests.golden_graphs import GOLDEN

LITTLE = Budget(samples=4, rankings=8, looked=4, trials=3)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in BACKENDS.names() if get_backend(name).needs_data])
def test_a_diagnosis_is_made_of_values_that_json_holds(name: str) -> None:
    graph = GOLDEN["transformer"]()

    found = diagnose(Subject(graph.model, backend=name, data=graph.samples), budget=LITTLE)

    values = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert values["quantizers"]
    assert sum(row["share"] for row in values["quantizers"]) <= 1.001
    assert len(summary_lines(found)) >= 2
    for trial in found.trials:
        assert (trial.after_db is None) == (trial.refused is not None)
