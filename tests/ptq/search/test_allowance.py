"""Steps are cut so that a limit of time is kept, those that gain least first; by a clock that the tests turn."""

from __future__ import annotations

import random

import pytest

from onnxq.errors import ConfigError
from onnxq.progress import OutOfTime, TimeLimit, Tracker
from onnxq.ptq.method import read_improvement
from onnxq.ptq.search.allowance import Allowance, read_skipped
from onnxq.ptq.search.costs import COSTS, cost_of, in_order, stage_of
from onnxq.ptq.search.schedule import USABLE, schedule_of
from tests.progress.clock import FakeClock

METHODS = {name: read_improvement(name) for name in schedule_of(3).names()}


WITHOUT_STEPS = 9 + 1 + 0.4 + 2.0 + 0.5
"""Seconds of everything that is not left out; a round takes 1, and so does calibration."""


class Run:
    """A run whose steps take what a test says: everything in front of the search takes 10 s, a round 1 s."""

    def __init__(self, limit: float, effort: int = 1) -> None:
        self.clock = FakeClock()
        self.tracker = Tracker(now=self.clock)
        self.limit = TimeLimit(limit, self.tracker.started, self.clock)
        self.tracker.measure_by("calibrate")
        for stage, rounds in (("emit", 0.4), ("verify", 2.0), ("page", 0.5)):
            self.tracker.expect(stage, rounds)
        self.tracker("load", 0, None)
        self.clock.pass_by(9)
        self.tracker("calibrate", 0, 4)
        self.clock.pass_by(1)
        self.tracker("calibrate", 4, 4)
        self.tracker.end_round()
        self.allowance = Allowance(self.tracker, self.limit)
        self.schedule = schedule_of(effort)
        self.tried: list[str] = []

    def step(self, name: str, number: int, seconds: float, pieces: int = 10) -> None:
        chosen = METHODS[name]
        if self.allowance.begin(name, chosen, number) is not None:
            return
        self.tracker(stage_of(chosen), 0, None)
        try:
            for done in range(pieces):
                self.clock.pass_by(seconds / pieces)
                self.allowance.check(done + 1, pieces)
                self.tracker(stage_of(chosen), done + 1, pieces)
            self.tried.append(name)
        except OutOfTime:
            self.allowance.broken_off(chosen, number)
        self.allowance.end(chosen)

    def search(self, factor: random.Random | float = 1.0) -> list[str]:
        """All steps, each of which takes so many times what is expected."""
        if self.allowance.is_enough_for(self.schedule.names()):
            self.allowance.announce(self.schedule, METHODS)
            self.clock.pass_by(0.6)
            for number, name in enumerate(in_order(self.schedule), 1):
                times = factor if isinstance(factor, float) else factor.choice([0.0, 0.3, 1.0, 2.0, 5.0])
                self.step(name, number, cost_of(name).rounds * times)
            self.allowance.over()
        else:
            self.allowance.leave_out_all(self.schedule.names())
        self.clock.pass_by(2.9)
        return self.tried


def test_with_time_for_all_nothing_is_left_out() -> None:
    run = Run(limit=60)
    assert run.search() == list(in_order(run.schedule))
    assert not run.limit.left_out
    assert run.limit.kept


def test_what_gains_least_is_left_out_first() -> None:
    wanted = ["outlier_placement", "outlier_placement:layers=yes", *USABLE.methods]
    wanted += ["weight_scale_search", "bias_correction"]
    run = Run(limit=WITHOUT_STEPS + 0.6 + sum(cost_of(name).rounds for name in wanted))
    assert run.search() == wanted
    left_out = {one.what.partition(":")[0] for one in run.limit.left_out}
    assert left_out == {"insert_smoothing", "cross_layer_equalization", "range_setting"}
    assert all(one.step for one in run.limit.left_out)
    assert run.limit.taken <= run.limit.seconds


def test_without_time_for_any_step_the_model_is_not_even_evaluated() -> None:
    least = min(cost_of(name).rounds for name in in_order(schedule_of(1)))
    run = Run(limit=WITHOUT_STEPS + 0.6 + 0.8 * least)
    assert run.search() == []
    assert [one.what for one in run.limit.left_out] == run.schedule.names()
    assert run.limit.taken == pytest.approx(WITHOUT_STEPS)


def test_a_step_that_takes_much_longer_than_expected_is_broken_off() -> None:
    run = Run(limit=30)
    assert run.search(factor=40.0) == []
    first = next(one for one in run.limit.left_out if one.begun)
    assert first.what == "outlier_placement"
    assert first.seconds == pytest.approx(40 * cost_of("outlier_placement").rounds)  # as its pieces say
    assert run.limit.kept


def test_a_slow_first_piece_breaks_nothing_off() -> None:
    """Libraries are loaded with it."""
    run = Run(limit=100)
    run.allowance.announce(run.schedule, METHODS)
    name = next(iter(in_order(run.schedule)))
    assert run.allowance.begin(name, METHODS[name], 1) is None
    run.clock.pass_by(1.0)
    run.allowance.check(1, 1000)
    run.clock.pass_by(9.0)
    run.allowance.check(900, 1000)


@pytest.mark.parametrize("effort", [1, 3])
@pytest.mark.parametrize("seed", range(40))
def test_a_limit_is_kept_whatever_steps_take(seed: int, effort: int) -> None:
    chance = random.Random(seed)
    run = Run(limit=chance.choice([14, 15, 17, 20, 25, 40, 80, 200]), effort=effort)
    run.search(chance)
    assert run.limit.kept, f"{run.limit.taken:.1f} of {run.limit.seconds}"


def test_without_a_limit_every_step_is_run() -> None:
    allowance = Allowance()
    schedule = schedule_of(1)
    allowance.announce(schedule, METHODS)
    for number, name in enumerate(in_order(schedule), 1):
        assert allowance.begin(name, METHODS[name], number) is None
        allowance.check(1, 2)
        allowance.end(METHODS[name])
    allowance.over()
    assert not allowance.tracker.ahead


def test_steps_of_another_run_are_no_steps_to_leave_out() -> None:
    allowance = Allowance(skipped=read_skipped(["2:gptq:act_order=no"]))
    with pytest.raises(ConfigError, match="step 2 is insert_smoothing here, not gptq:act_order=no"):
        allowance.begin("insert_smoothing", METHODS["insert_smoothing"], 2)
    allowance = Allowance(skipped=read_skipped(["9:gptq"]))
    with pytest.raises(ConfigError, match="9:gptq did not come up"):
        allowance.over()


def test_every_method_of_the_schedules_has_its_cost() -> None:
    names = {METHODS[name].method.name for name in METHODS}
    assert names <= set(COSTS)
