"""--for latency: what is faster in float stays float, says so, and costs no accuracy. Times are made up."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import onnxq
from onnxq.errors import ConfigError
from onnxq.latency import tune
from onnxq.latency.groups import groups
from onnxq.progress import TimeLimit
from onnxq.runtime.feeds import Feed
from onnxq.runtime.timing import Pace
from onnxq.session.session import Session, open_session
from onnxq.verify.kernels import integer_kernels
from tests.passes.equivalence import build_model

SHAPE = (1, 4, 8, 8)
RNG = np.random.default_rng(0)
GROUPED = (1, 3)
FASTER_IN_FLOAT = {"QLinearConv": 3.0, "Conv": 1.0, "FusedConv": 1.0}


def network(*exact: str) -> onnx.ModelProto:
    """Two blocks of a convolution and one with groups, whose results are joined, and a last convolution.

    `exact` are outputs in front of its own that no quantizer changes.
    """
    nodes, constants, rng = [], {}, np.random.default_rng(1)
    for number in range(5):
        inputs = 1 if number in GROUPED else 4
        constants[f"w{number}"] = rng.normal(0, 0.4, (4, inputs, 3, 3)).astype(np.float32)
    read = "x"
    for number in range(5):
        count = 4 if number in GROUPED else 1
        reads, read = [read, f"w{number}"], f"c{number}"
        nodes.append(helper.make_node("Conv", reads, [read], f"conv{number}", group=count, pads=[1] * 4))
        if number in GROUPED:
            op = "Add" if number == 1 else "Mul"
            nodes.append(helper.make_node(op, [f"c{number}", f"c{number - 1}"], [f"j{number}"], name=f"join{number}"))
            read = f"j{number}"
    nodes += [helper.make_node("Neg", ["x"], [name], f"neg_{name}") for name in exact]
    return build_model(nodes, {"x": SHAPE}, [*exact, read], constants)


def session(*exact: str) -> Session:
    data = [{"x": RNG.normal(0, 1, SHAPE).astype(np.float32)} for _ in range(8)]
    config = {"optimize_for": "latency", "effort": 0, "skip": [f"neg_{name}" for name in exact]}
    opened = open_session(network(*exact), backend="onnxruntime", data=data, config=config)
    opened.open_data()
    return opened


class CostTable:
    """A stopwatch that adds up what the operators of a file cost after onnxruntime's optimizer."""

    def __init__(self, costs: Mapping[str, float]) -> None:
        self._costs = costs
        self.timed = 0

    def __call__(self, first: Path, second: Path, feed: Feed) -> Pace:
        self.timed += 1
        one, other = self._cost(first), self._cost(second)
        return Pace(one, other, (one / other,) * 5)

    def _cost(self, path: Path) -> float:
        found = integer_kernels(path)
        counts = Counter({**found.integer, **found.floating, **found.quantizers})
        return 10.0 + sum(self._costs.get(op, 0.0) * count for op, count in counts.items())


def test_what_costs_more_in_integers_stays_float_with_its_reason() -> None:
    found = tune.tuned(session(), CostTable(FASTER_IN_FLOAT))
    plan = found.calibrated().state.plan
    codes = {name: reason.code for name, reason in plan.left_float.items()}
    assert [name for name, code in codes.items() if code == "measured_slower"] == ["conv0", "conv2", "conv4"]
    assert "measured slower in integers: with all Conv in float" in plan.left_float["conv2"]
    tuning = found.prepared.tuning
    assert tuning is not None
    assert [group.name for group in tuning.timed if group.kept] == ["all Conv"]
    assert tuning.left == 0
    assert found.settings.optimize_for is None  # who runs this configuration again gets this plan
    assert found.settings.node["conv2"].skip


def test_nothing_changes_where_integers_are_faster() -> None:
    found = tune.tuned(session(), CostTable({"Conv": 3.0, "FusedConv": 3.0, "QuantizeLinear": 0.5}))
    assert not found.calibrated().state.plan.left_float
    tuning = found.prepared.tuning
    assert tuning is not None
    assert tuning.timed
    assert not tuning.float_nodes


def test_a_group_that_was_faster_by_chance_is_quantized_again() -> None:
    asked: Counter[tuple[str, str]] = Counter()

    def lucky(first: Path, second: Path, feed: Feed) -> Pace:
        asked[first.name, second.name] += 1
        seen = asked[first.name, second.name]
        quotient = (1.05 if seen <= 2 else 0.97) if first.stem == "candidate1" and len(asked) == 1 else 0.9
        return Pace(1.0, 1.0 / quotient, (quotient,) * 5)

    found = tune.tuned(session(), lucky)
    assert not found.calibrated().state.plan.left_float
    tuning = found.prepared.tuning
    assert tuning is not None
    assert tuning.timed[0].times_as_fast == 1.05
    assert not tuning.float_nodes
    assert not found.settings.node


def test_float_nodes_pay_for_the_slow_form_of_weights_where_kernels_saturate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune, "sums_are_exact", lambda: False)

    class Slower(CostTable):
        def _cost(self, path: Path) -> float:
            types = {held.data_type for held in onnx.load(path).graph.initializer if len(held.dims) == 4}
            return super()._cost(path) + (20.0 if onnx.TensorProto.UINT8 in types else 0.0)

    tuning = tune.tuned(session(), Slower(FASTER_IN_FLOAT)).prepared.tuning
    assert tuning is not None
    assert not tuning.float_nodes
    assert max(group.times_as_fast for group in tuning.timed) > 1.02


def test_accuracy_is_a_constraint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune, "ALLOWED_LOSS_DB", -1000.0)  # as if everything lost
    tuning = tune.tuned(session(), CostTable(FASTER_IN_FLOAT)).prepared.tuning
    assert tuning is not None
    assert not tuning.float_nodes
    assert all(group.lost_db is not None for group in tuning.timed if group.times_as_fast > 1.02)


def test_outputs_that_are_exact_lose_nothing() -> None:
    tuning = tune.tuned(session("exact"), CostTable(FASTER_IN_FLOAT)).prepared.tuning
    assert tuning is not None
    assert [group.name for group in tuning.timed if group.kept] == ["all Conv"]
    json.dumps(tuning.to_json(), allow_nan=False)


def test_what_was_said_stays_said() -> None:
    opened = session()
    said = opened.settings.model_copy(update={"diagnose": True, "minimum_sqnr_db": 5.0})
    found = tune.tuned(replace(opened, settings=said), CostTable(FASTER_IN_FLOAT))
    assert {"diagnose", "minimum_sqnr_db", "effort"} <= found.settings.model_fields_set


def test_the_time_is_bounded_and_what_was_left_is_counted() -> None:
    times = iter([0.0, 1.0, 2.0, *[tune.MOST_SECONDS + 5.0] * 100])
    watch = CostTable({})
    tuning = tune.tuned(session(), watch, lambda: next(times)).prepared.tuning
    assert tuning is not None
    assert watch.timed == len(tuning.timed) == 2
    assert tuning.left > 0


def test_a_limit_for_the_whole_run_leaves_half_of_it_to_the_rest() -> None:
    opened = replace(session(), limit=TimeLimit(8.0, 0.0, lambda: 0.0))
    times = iter([0.0, 1.0, *[5.0] * 100])
    tuning = tune.tuned(opened, CostTable({}), lambda: next(times)).prepared.tuning
    assert tuning is not None
    assert (len(tuning.timed), tuning.left > 0) == (1, True)


def test_groups_are_operators_and_regions_and_never_all() -> None:
    opened = session()
    plan = opened.plan()
    found = groups(opened.prepared.graph, plan)
    assert [group.name for group in found if group.name.startswith("all")] == [
        "all Conv",
        "all Conv with groups",
        "all Add",
        "all Mul",
    ]
    assert all(set(group.nodes) < set(plan.quantized) for group in found)
    assert len({frozenset(group.nodes) for group in found}) == len(found)


def test_other_targets_are_refused_before_anything_runs() -> None:
    data = [{"x": np.zeros(SHAPE, np.float32)}]
    with pytest.raises(ConfigError, match="says nothing about the target tensorrt"):
        onnxq.quantize(network(), backend="tensorrt", data=data, config={"optimize_for": "latency"})


def test_who_only_places_is_told(tmp_path: Path) -> None:
    opened = open_session(network(), backend="onnxruntime", config={"optimize_for": "latency"})
    assert any("nodes are timed by 'onnxq quantize' alone" in note for note in opened.plan().notes)


def test_a_run_writes_the_tuned_file_and_its_report(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    watch = CostTable(FASTER_IN_FLOAT)
    monkeypatch.setattr(tune, "in_new_sessions", watch)
    data = [{"x": RNG.normal(0, 1, SHAPE).astype(np.float32)} for _ in range(8)]
    config = {"optimize_for": "latency", "effort": 0, "report": "no"}
    result = onnxq.quantize(network(), backend="onnxruntime", data=data, config=config, out=tmp_path / "out")
    assert result.report["coverage"]["float_codes"]["measured_slower"] == ["conv0", "conv2", "conv4"]
    assert [group["group"] for group in result.report["tuning"]["groups"] if group["float"]] == ["all Conv"]
    assert integer_kernels(result.model).floating == {"Conv": 3}
    again = onnxq.quantize(
        network(), backend="onnxruntime", data=data, config=tmp_path / "out" / "config.json", out=tmp_path / "again"
    )
    assert again.model.read_bytes() == result.model.read_bytes()
