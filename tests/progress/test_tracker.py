"""How far a run is, by a clock that the tests turn."""

from __future__ import annotations

import random

import pytest

from onnxq.progress import Tracker, tracked
from tests.progress.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def tracker(clock: FakeClock) -> Tracker:
    return Tracker(now=clock)


def calibrated(tracker: Tracker, clock: FakeClock, seconds: float = 10.0) -> None:
    for done in range(1, 11):
        clock.pass_by(seconds / 10)
        tracker("calibrate", done, 10)


def test_nothing_is_said_before_anything_was_measured(tracker: Tracker, clock: FakeClock) -> None:
    tracker.measure_by("calibrate")
    tracker.expect("verify", 2.0)
    tracker("passes", 0, None)
    clock.pass_by(50)
    assert tracker.left() is None
    assert tracker.share() == 0.0


def test_the_pace_of_the_measured_stage_tells_what_comes_behind_it(tracker: Tracker, clock: FakeClock) -> None:
    tracker.measure_by("calibrate")
    tracker.expect("verify", 2.0)
    tracker("calibrate", 0, 10)
    clock.pass_by(5)
    tracker("calibrate", 5, 10)
    assert tracker.left() == pytest.approx(5 + 2 * 10)
    assert tracker.share() == pytest.approx(5 / 30)


def test_steps_that_take_longer_make_those_ahead_dearer(tracker: Tracker, clock: FakeClock) -> None:
    tracker.measure_by("calibrate")
    tracker("calibrate", 0, 10)
    calibrated(tracker, clock)
    tracker.expect("improve: a", 2.0)
    tracker.expect("improve: b", 2.0)
    tracker.expect("verify", 1.0)
    tracker("improve: a", 0, None)
    assert tracker.seconds_of("improve: b", 2.0) == pytest.approx(20)
    clock.pass_by(100)
    tracker.close("improve: a")
    assert tracker.seconds_of("improve: b", 2.0) == pytest.approx(20 * (100 + 30) / (20 + 30))
    assert tracker.seconds_of("verify", 1.0) == pytest.approx(10)


def test_an_announced_stage_ends_those_before_it_and_another_one_does_not(tracker: Tracker, clock: FakeClock) -> None:
    tracker.expect("emit", 0.1)
    tracker("search", 1, 4)
    clock.pass_by(1)
    tracker("calibrate", 3, 9)
    search, calibrate = tracker.stages
    assert search.open
    assert search.since is None
    tracker("emit", 0, None)
    assert not search.open
    assert not calibrate.open
    assert tracker.running is not None
    assert tracker.running.name == "emit"


def test_a_loop_with_stages_inside_counts_their_time(tracker: Tracker, clock: FakeClock) -> None:
    tracker("search", 0, 4)
    for done in (1, 2):
        tracker("calibrate", 0, 1)
        clock.pass_by(10)
        tracker("calibrate", 1, 1)
        tracker("search", done, 4)
    assert tracker.left() == pytest.approx(20)
    assert tracker.share() == pytest.approx(0.5)


def test_stages_that_do_not_come_are_no_longer_waited_for(tracker: Tracker, clock: FakeClock) -> None:
    tracker.measure_by("calibrate")
    for name in ("improve: a", "improve: b", "improve: b", "verify"):
        tracker.expect(name, 1.0)
    tracker("calibrate", 0, 10)
    calibrated(tracker, clock)
    assert tracker.left() == pytest.approx(40)
    tracker.drop("improve: b")
    assert tracker.left() == pytest.approx(30)
    tracker.drop_kind("improve")
    assert tracker.left() == pytest.approx(10)


def test_without_a_measured_stage_a_round_is_what_the_first_evaluation_takes(tracker: Tracker) -> None:
    tracker.measure_by("calibrate")  # which never tells anything: its statistics are in a file
    tracker.expect("verify", 2.0)
    tracker.end_round()
    tracker.end_round(at_least=3.0)
    assert tracker.left() == pytest.approx(6)


@pytest.mark.parametrize("seed", range(20))
def test_the_share_never_falls_and_ends_with_all(seed: int) -> None:
    """Runs whose stages take anything from nothing to twenty times what was expected of them."""
    chance, clock, seen = random.Random(seed), FakeClock(), []
    tracker = Tracker(lambda *_: seen.append(tracker.share()), now=clock)
    tracker.measure_by("calibrate")
    names = [f"improve: {number}" for number in range(chance.randrange(8))] + ["emit", "verify", "page"]
    for name in names:
        tracker.expect(name, chance.uniform(0.1, 5))
    tracker("passes", 0, None)
    clock.pass_by(chance.uniform(0, 3))
    for done in range(6):
        tracker("calibrate", done, 5)
        clock.pass_by(chance.uniform(0, 1))
    for name in names:
        if chance.random() < 0.2:
            tracker.drop(name)
            continue
        pieces = chance.randrange(5)
        for done in range(pieces + 1):
            tracker(name, done, pieces or None)
            clock.pass_by(chance.choice([0.0, 0.1, 1.0, 20.0]))
            seen.append(tracker.share())
    assert seen == sorted(seen)
    assert 0 < seen[-1] < 1
    tracker.finish()
    assert tracker.share() == 1.0
    assert tracker.view().left == 0.0


def test_a_function_gets_what_stages_report() -> None:
    seen: list[tuple[str, int, int | None]] = []
    tracker = tracked(lambda *report: seen.append(report))
    tracker("calibrate", 1, 2)
    assert seen == [("calibrate", 1, 2)]
    assert tracked(tracker) is tracker


def test_the_last_stage_has_its_rest_too(tracker: Tracker, clock: FakeClock) -> None:
    tracker.measure_by("calibrate")
    tracker.expect("page", 2.0)
    tracker("calibrate", 0, 10)
    calibrated(tracker, clock)
    tracker("page", 0, None)
    clock.pass_by(5)
    assert tracker.left() == pytest.approx(15)


def test_a_step_that_comes_once_more_takes_what_it_has_taken_before(tracker: Tracker, clock: FakeClock) -> None:
    tracker.measure_by("calibrate")
    tracker("calibrate", 0, 10)
    calibrated(tracker, clock)
    tracker.expect("improve: a", 1.0)
    for _ in range(2):
        tracker("improve: a", 0, None)
        clock.pass_by(8)
        tracker.close("improve: a")
    tracker("improve: a", 0, 4)
    clock.pass_by(2)
    assert tracker.left() == pytest.approx(6)
