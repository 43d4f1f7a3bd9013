"""Every target can be diagnosed: nothing in a diagnosis knows one by its name, or relies on a format of one."""

from __future__ import annotations

import json

import pytest

from onnxq.calibrate import activation_leaders
from onnxq.diagnose import Budget, diagnose
from onnxq.diagnose.experiment import with_channels
from onnxq.diagnose.look import look_at
from onnxq.diagnose.text import summary_lines
from onnxq.mixed_precision import Subject
from onnxq.ptq.search.evaluator import Evaluator
from onnxq.session.session import open_session
from onnxq.targets import BACKENDS, get_backend
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
        data = trial.remedy.data
        more_samples = data is not None and data.action == "more"  # which nobody has here
        assert (trial.after_db is None) == (trial.refused is not None or more_samples)


@pytest.mark.parametrize("graph", ["residual", "transformer"])
@pytest.mark.parametrize("name", [name for name in BACKENDS.names() if get_backend(name).simulations])
def test_an_experiment_with_channels_is_evaluated_where_the_chip_has_none(name: str, graph: str) -> None:
    """What a chip computes is simulated for formats that it has not, too: that is how causes are proven."""
    golden = GOLDEN[graph]()
    found = open_session(golden.model, backend=name, data=golden.samples).calibrated()
    assert found.session.dataset is not None
    state = found.state
    leaders = [placement.tensor for placement in activation_leaders(found.state.plan)]
    seen = look_at(state.graph, leaders, found.session.dataset, None, most=2)
    evaluator = Evaluator(state.graph, found.session.prepared.backend, golden.samples[:2])
    changed = state
    for tensor in leaders:
        channels = seen[tensor].channels if tensor in seen else None
        if channels is not None:
            changed = with_channels(tensor, channels.axis, channels.low, channels.high)(changed)

    assert changed is not state
    assert evaluator(changed).sqnr_db
