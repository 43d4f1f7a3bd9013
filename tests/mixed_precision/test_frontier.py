"""Frontiers: exactly the combinations that no other one beats; predicted costs are those of placed plans."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.costs import count, products, weights_of
from onnxq.mixed_precision import Subject
from onnxq.mixed_precision.budget import Measure, cost_in
from onnxq.mixed_precision.choices import Choices, configured, find_choices
from onnxq.mixed_precision.frontier import frontier, together
from onnxq.mixed_precision.propose import CostModel, predicted_loss, proposals
from onnxq.mixed_precision.study import Study

SubjectOf = Callable[..., Subject]

members = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 40).map(float)), min_size=1, max_size=4)


@settings(deadline=None)
@given(st.lists(members, min_size=1, max_size=5))
def test_the_frontier_of_units_is_that_of_all_combinations(units: list[list[tuple[int, float]]]) -> None:
    made = [
        frontier([str(number)], [(cost, loss, [place]) for place, (cost, loss) in enumerate(unit)])
        for number, unit in enumerate(units)
    ]
    whole = together(made)
    sums = [(sum(c for c, _ in case), sum(loss for _, loss in case)) for case in product(*units)]
    best = {(c, loss) for c, loss in sums if not any(d <= c and m <= loss and (d, m) != (c, loss) for d, m in sums)}
    assert set(zip(whole.costs.tolist(), whole.losses.tolist(), strict=True)) == best
    for number in range(len(whole)):
        chosen = [units[place][choice] for place, choice in enumerate(whole.choices[number])]
        assert sum(cost for cost, _ in chosen) == whole.costs[number]
        assert sum(loss for _, loss in chosen) == whole.losses[number]


def test_a_long_frontier_is_thinned_and_stays_near() -> None:
    rng = np.random.default_rng(0)
    units = [
        frontier([str(n)], [(int(c), 1.0 / c, [i]) for i, c in enumerate(rng.integers(1, 10**6, 4))]) for n in range(12)
    ]
    exact, thinned = together(units, most=10**6), together(units, most=128)
    assert len(thinned) <= 129 < len(exact)
    assert thinned.costs[0] == exact.costs[0]
    assert thinned.losses[-1] == exact.losses[-1]
    for cost, loss in zip(thinned.costs[4:], thinned.losses[4:], strict=True):
        assert loss <= 1.2 * exact.losses[exact.costs <= cost][-1]


def found_choices(subject: Subject, what: Any, bits: tuple[int, ...]) -> tuple[Study, Choices, list[Any]]:
    study = Study(subject)
    found = products(study.graph, study.feed)
    return study, find_choices(study, bits, what, found), found


@pytest.mark.parametrize(
    ("backend", "what", "measure"),
    [("onnxruntime", "weights", "bytes"), ("academic", "weights", "bits"), ("academic", "both", "bit_operations"),
     ("academic", "activations", "bit_operations")],
)  # fmt: skip
def test_predicted_costs_are_those_of_placed_plans(
    digits: SubjectOf, backend: str, what: Any, measure: Measure
) -> None:
    bits = (8, 4) if backend == "onnxruntime" else (8, 4, 2)
    study, choices, found = found_choices(digits(backend), what, bits)
    weights = weights_of(study.graph, study.plan(), found)

    def placed(chosen: dict[str, int]) -> int:
        plan = study.plan(configured(study.config, chosen, choices.variables))
        return cost_in(measure, count(study.graph, plan, found, weights))

    most = count(study.graph, study.plan(configured(study.config, choices.most(), choices.variables)), found, weights)
    model = CostModel(study.graph, choices, found, measure, most)
    rng = np.random.default_rng(0)
    for _ in range(10):
        chosen = {variable.name: int(rng.choice(variable.bits)) for variable in choices.variables}
        assert model.cost(chosen) == placed(chosen)

    losses = {v.name: {number: 4.0 ** -(number + i % 3) for number in v.bits} for i, v in enumerate(choices.variables)}
    ahead = proposals(choices, losses, model)
    for number in range(0, len(ahead), 1 + len(ahead) // 10):
        assert placed(ahead.bits(number)) == ahead.costs[number]
        assert predicted_loss(losses, ahead.bits(number)) == pytest.approx(ahead.losses[number])


def test_the_proposed_front_beats_every_random_choice(digits: SubjectOf) -> None:
    study, choices, found = found_choices(digits("academic"), "both", (8, 4, 2))
    most = count(study.graph, choices.plans[8], found, weights_of(study.graph, study.plan(), found))
    model = CostModel(study.graph, choices, found, "bit_operations", most)
    rng = np.random.default_rng(1)
    losses = {v.name: {number: float(rng.random()) * 4.0**-number for number in v.bits} for v in choices.variables}
    ahead = proposals(choices, losses, model)
    for _ in range(300):
        chosen = {variable.name: int(rng.choice(variable.bits)) for variable in choices.variables}
        within = ahead.losses[ahead.costs <= model.cost(chosen)]
        assert within.min() <= predicted_loss(losses, chosen) * (1 + 1e-9)
