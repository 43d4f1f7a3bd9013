"""Rules on positions switched off one by one, and the lower limit of positions that observers have."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from onnxq.config import read_config
from onnxq.config.resolve import resolve
from onnxq.emit.qdq import to_qdq
from onnxq.errors import ConfigError
from onnxq.graph import Graph
from onnxq.lint.limits import lint
from onnxq.observers import make_observer, observe_constant
from onnxq.refine import refine
from onnxq.session.prepare import make_plan, prepare
from onnxq.targets import get_backend
from onnxq.targets.amd.dialect import translate
from onnxq.targets.amd.dpu_rules import LEAKY_BIAS, SWITCHES, Site, breaches
from onnxq.targets.amd.dpu_settle import settle
from onnxq.types import Backend, QuantSpec
from tests.targets.amd.dpu_graphs import drawn, network

CONV = Site("conv", "Conv", ("i",), "w", "b", "o")
BROKEN = {
    "align_concat": (Site("c", "Concat", ("i", "j"), output="o"), {"i": 4, "j": 6, "o": 5}),
    "align_pool": (Site("p", "MaxPool", ("i",), output="o"), {"i": 4, "o": 5}),
    "align_pad": (Site("p", "Pad", ("i",), output="o"), {"i": 6, "o": 5}),
    "align_slice": (Site("p", "Slice", ("i",), output="o"), {"i": 6, "o": 5}),
    "shift_read": (Site("a", "Add", ("i", "j"), output="o"), {"i": 3, "j": 11, "o": 3}),
    "shift_write": (Site("a", "Add", ("i", "j"), output="o"), {"i": 3, "j": 3, "o": 11}),
    "shift_cut": (CONV, {"i": 0, "w": 2, "b": 2, "o": 5}),
    "shift_bias": (CONV, {"i": 10, "w": 10, "b": 4, "o": 4}),
    "hard_sigmoid": (Site("h", "HardSigmoid", ("i",), output="o", hard_sigmoid=True), {"i": -1, "o": 6}),
    "shift_swish": (Site("m", "Mul", ("i", "j"), output="o", swish=True), {"i": 9, "j": 8, "o": 1}),
    LEAKY_BIAS: (replace(CONV, leaky=True), {"i": 2, "w": 2, "b": 5, "o": 3}),
}


def test_every_rule_has_a_switch() -> None:
    assert set(BROKEN) == set(SWITCHES)


@pytest.mark.parametrize("rule", SWITCHES)
def test_a_rule_that_is_off_neither_moves_positions_nor_complains(rule: str) -> None:
    site, positions = BROKEN[rule]
    assert list(breaches([site], positions))
    assert settle([site], positions).positions != positions
    assert not list(breaches([site], positions, {rule}))
    assert settle([site], positions, {rule}).positions == positions


def test_the_switches_are_values_of_the_backend() -> None:
    def resolved(*names: str) -> Backend:
        return resolve(read_config({"skip_refinements": names}), get_backend("vitis"))

    assert resolved().skipped_rules == {}
    both = resolved("dpu_positions.shift_cut", "dpu_positions.align_pool")
    assert both.skipped_rules == {"dpu_positions": ("shift_cut", "align_pool")}
    assert both.refinements == get_backend("vitis").refinements
    assert resolved("dpu_positions.shift_cut", "dpu_positions").skipped_rules == {}
    with pytest.raises(ConfigError, match="Did you mean 'shift_cut'"):
        resolved("dpu_positions.shift_cuts")
    with pytest.raises(ConfigError, match=r"no refinement 'coarse_weights\.shift_cut'"):
        resolved("coarse_weights.shift_cut")


SWITCHES_OF_VITIS = {
    "adjust_dpu_sigmoid": "hard_sigmoid",
    "adjust_dpu_shift_cut": "shift_cut",
    "adjust_dpu_shift_bias": "shift_bias",
    "adjust_dpu_shift_read": "shift_read",
    "adjust_dpu_shift_write": "shift_write",
    "align_concat": "align_concat",
}
"""All but align_pool, for which placement gives both sides of pooling one scale."""


@pytest.mark.parametrize(("key", "rule"), SWITCHES_OF_VITIS.items())
def test_a_strategy_without_a_rule_is_neither_refined_nor_checked_by_it(key: str, rule: str) -> None:
    model = network()
    rules_named, lines = {}, {}
    for wanted in (True, False):
        prepared = prepare(model, config=translate({key: wanted}, Graph.from_model(model)))
        plan = make_plan(prepared)
        drawings = [drawn(plan, seed) for seed in range(3)]
        files = [to_qdq(prepared.graph, plan, table, prepared.backend)[0] for table in drawings]
        rules_named[wanted] = {found.rule for file in files for found in lint(file, prepared.backend)}
        refined = [refine(prepared.graph, plan, table, prepared.backend) for table in drawings]
        lines[wanted] = [note for step in refined for note in step.notes if f": {rule} of" in note]
    assert rule in rules_named[True]
    assert rules_named[False] == rules_named[True] - {rule}
    assert lines[True]
    assert not lines[False]


@pytest.mark.parametrize("name", ["no_overflow", "min_mse", "min_kl"])
def test_a_position_is_not_below_its_lower_limit(name: str) -> None:
    values = np.linspace(-1000, 1000, 4001, dtype=np.float32)
    spec = QuantSpec("int8", power_of_two=True)
    free = observe_constant(values, make_observer(name), spec).scale
    limited = observe_constant(values, make_observer(f"{name}:min_position=-1"), spec).scale
    assert free > 2.0
    assert limited == 2.0


def test_min_position_is_the_last_parameter() -> None:
    assert str(make_observer("min_mse:12,3,-4")) == "min_mse:max_position=12,candidates=3,min_position=-4"
    with pytest.raises(ConfigError, match="min_position of observer 'no_overflow' must be -128 to max_position"):
        make_observer("no_overflow:max_position=4,min_position=5")
