"""Noise of single quantizers, found by measuring sets of them, and the cheapest nodes that take it away."""

from __future__ import annotations

import pytest

from onnxq.graph import Graph
from onnxq.progress import silent
from onnxq.ptq.cheapest_nodes import Remedy, cheapest
from onnxq.ptq.method import State
from onnxq.ptq.noise_of_parts import noise_of_parts, with_these_alone
from onnxq.types import Placement, QParamsTable, QuantPlan, QuantSpec
from tests.zoo_graphs.net import Net


def state_of(names: list[str]) -> State:
    net = Net("nothing")
    net.output(net.node("Relu", net.input("x", [1])), [1])
    spec = QuantSpec("uint8", symmetric=False)
    placements = {name: Placement(name, spec, "activation", "test", observe=(name,)) for name in names}
    return State(Graph.from_model(net.model()), QuantPlan("test", placements), QParamsTable())


def test_the_loudest_are_found_in_fewer_runs_than_there_are_quantizers() -> None:
    names = [f"t{number}" for number in range(64)]
    true = dict.fromkeys(names, 1e-7) | {"t5": 1e-2, "t40": 4e-3}
    runs = 0

    def loss(state: State) -> float:
        nonlocal runs
        runs += 1
        return sum(true[item.tensor] for item in state.plan)

    found = noise_of_parts(state_of(names), names, loss, 1e-4, silent)
    assert runs < 24
    assert found["t5"] == pytest.approx(1e-2, rel=0.01)
    assert found["t40"] == pytest.approx(4e-3, rel=0.01)
    assert sum(found.values()) == pytest.approx(sum(true.values()), rel=0.01)


def test_quantizers_with_the_same_scale_are_one_part() -> None:
    state = state_of(["lead", "other"])
    follower = Placement("tied", QuantSpec("uint8", symmetric=False), "activation", "test", tie="lead")
    plan = QuantPlan("test", {**state.plan.placements, "tied": follower})
    kept = with_these_alone(plan, ["lead"])
    assert set(kept.placements) == {"lead", "tied"}
    assert kept["tied"].tie is None


def remedy(noise: float, *nodes: str) -> Remedy:
    return Remedy(noise, frozenset(nodes))


COSTS = {"large": 0.7, "small": 0.1, "other": 0.2}
LAYERS = frozenset(COSTS)


def test_what_takes_most_noise_for_its_work_is_taken() -> None:
    remedies = {"a": remedy(5.0, "large"), "b": remedy(4.0, "small"), "c": remedy(3.0, "other")}
    assert cheapest(remedies, COSTS, 7.0, LAYERS, 3) == ["b", "c"]
    assert set(cheapest(remedies, COSTS, 9.0, LAYERS, 3)) == {"a", "b"}  # what c took away is not needed then


def test_noise_around_the_same_nodes_goes_together() -> None:
    remedies = {"input": remedy(2.0, "large"), "weight": remedy(6.0, "large"), "b": remedy(1.0, "small")}
    assert cheapest(remedies, COSTS, 7.5, LAYERS, 3) in (["input"], ["weight"])


def test_formats_that_cost_nothing_come_first() -> None:
    remedies = {"matrix": remedy(2.0), "b": remedy(3.0, "small")}
    assert cheapest(remedies, COSTS, 2.0, LAYERS, 3) == ["matrix"]


def test_no_more_layers_leave_than_may() -> None:
    remedies = {"a": remedy(5.0, "large"), "b": remedy(4.0, "small"), "c": remedy(3.0, "other")}
    assert cheapest(remedies, COSTS, 100.0, LAYERS, 1) == ["b"]
