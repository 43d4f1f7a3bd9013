"""Two models in turns: what is counted, when it ends, and what the quotients say."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from onnxq.runtime.timing import Pace, in_turns


class Machine:
    """A clock that runs on when something is computed; the first run of everything takes ten times as long."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ran: list[str] = []

    def run(self, name: str, seconds: float) -> Callable[[], None]:
        def one() -> None:
            self.now += seconds * (1 if name in self.ran else 10)
            self.ran.append(name)

        return one


def test_models_run_in_turns_and_first_runs_do_not_count() -> None:
    machine = Machine()
    first, second = machine.run("a", 0.3), machine.run("b", 0.1)
    pace = in_turns(first, second, seconds=100.0, rounds=5, timer=lambda: machine.now)
    assert machine.ran == ["a", "b", *["a", "b", "b", "a"] * 5]
    assert pace.times_as_fast == pytest.approx(3.0)
    assert (pace.first_ms, pace.second_ms) == pytest.approx((300.0, 100.0))


def test_the_time_is_kept_but_for_one_round() -> None:
    machine = Machine()
    first, second = machine.run("a", 1.0), machine.run("b", 1.0)
    assert len(in_turns(first, second, seconds=0.5, timer=lambda: machine.now).quotients) == 1
    assert len(in_turns(first, second, seconds=12.5, timer=lambda: machine.now).quotients) == 3


def test_short_runs_are_repeated_in_a_turn() -> None:
    machine = Machine()
    first, second = machine.run("a", 1e-5), machine.run("b", 1e-5)
    in_turns(first, second, seconds=1.0, rounds=1, timer=lambda: machine.now)
    turns = len(machine.ran) // 4
    assert machine.ran == ["a", "b", *["a"] * turns, *["b"] * 2 * turns, *["a"] * turns]
    assert len(machine.ran) > 20


def test_quartiles_are_those_of_the_rounds() -> None:
    pace = Pace(1.0, 2.0, (0.4, 0.5, 0.5, 0.6, 2.0))
    assert pace.times_as_fast == 0.5
    assert pace.quartiles == (0.5, 0.6)
    assert pace.to_json() == {
        "float_ms": 1.0,
        "file_ms": 2.0,
        "times_as_fast": 0.5,
        "quartiles": [0.5, 0.6],
        "rounds": 5,
    }
