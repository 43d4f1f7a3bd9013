"""Improvements: what helps on the held samples is kept, what does not is dropped, and every step is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onnxq.errors import ConfigError
from onnxq.ptq.method import IMPROVEMENTS, Samples, State, Task, improvement
from onnxq.ptq.search.evaluator import Evaluator
from onnxq.ptq.search.outcome import Level
from onnxq.ptq.search.reasons import StepReason
from onnxq.ptq.search.run import improve
from onnxq.ptq.search.sample_split import split_samples
from onnxq.ptq.search.schedule import LEVELS, Roundings, Schedule, Stage, schedule_of
from onnxq.session.session import Calibrated
from tests.ptq.search.known_steps import STEPS, improve_coarse, scaled


def staged(*names: str, finish: tuple[str, ...] = ()) -> Schedule:
    return replace(Schedule.of_names(names), finish=finish)


@pytest.mark.usefixtures("steps")
def test_what_helps_is_kept_and_what_does_not_is_dropped(ready: Calibrated) -> None:
    outcome, evaluator = improve_coarse(ready, Schedule.of_names(("damage", "repair", "nothing", "impossible")))
    assert [(step.name, step.applied) for step in outcome.steps] == [
        ("damage", False),
        ("repair", True),
        ("nothing", False),
        ("impossible", False),
    ]
    assert outcome.after.value > outcome.before.value + 6
    assert evaluator(outcome.state) == outcome.after
    damaged, _, nothing, impossible = outcome.steps
    assert [step.why.reason for step in outcome.steps] == [
        StepReason.NO_GAIN,
        StepReason.ACCEPTED,
        StepReason.NOTHING_TO_CHANGE,
        StepReason.NOT_POSSIBLE,
    ]
    assert str(damaged.why).startswith("did not help: sqnr_db")
    assert str(nothing.why) == "there was nothing to change"
    assert nothing.declined == ("no layer",)
    assert str(impossible.why) == "not possible here: no layer of this kind"


@pytest.mark.usefixtures("steps")
def test_of_alternatives_only_the_best_counts_as_applied(ready: Calibrated) -> None:
    outcome, _ = improve_coarse(ready, Schedule((Stage(("repair_a_little", "repair")),)))
    little, whole = outcome.steps
    assert not little.applied
    assert little.why.reason is StepReason.SUPERSEDED
    assert str(little.why).endswith("something else was better still")
    assert whole.applied
    twice, _ = improve_coarse(ready, Schedule.of_names(("repair_a_little", "repair_a_little")))
    assert [step.applied for step in twice.steps] == [True, True]  # one after the other, not instead of each other


@pytest.mark.usefixtures("steps")
def test_what_only_helps_when_it_is_finished_is_kept(ready: Calibrated) -> None:
    outcome, _ = improve_coarse(ready, staged("nothing", "cut_off", finish=("widen",)))
    assert [(step.name, step.applied) for step in outcome.steps] == [
        ("nothing", False),
        ("cut_off", True),
        ("widen", False),  # of the state that was not cut off
        ("widen", True),
    ]
    assert outcome.after.value > outcome.before.value + 6
    assert outcome.steps[1].why.reason is StepReason.NEEDED_LATER
    assert str(outcome.steps[1].why).startswith("helps with what follows: sqnr_db")
    useless, _ = improve_coarse(ready, staged("damage", finish=("repair",)))
    assert [(step.name, step.applied) for step in useless.steps] == [
        ("damage", False),
        ("repair", True),
        ("repair", False),
    ]


LOOSENED = Stage(("loosen",), deferrable=True)
LOOSENED_AND_TIGHTENED = Schedule((LOOSENED, Stage(("nothing",))), finish=("tighten",))
"""The first step alone loses 1.8 dB, and the second one 6; both together bring scales to where they belong."""


@pytest.mark.usefixtures("steps")
def test_what_is_unfinished_is_evaluated_with_what_finishes_it(ready: Calibrated) -> None:
    outcome, evaluator = improve_coarse(ready, LOOSENED_AND_TIGHTENED)
    assert [(step.name, step.applied) for step in outcome.steps] == [
        ("loosen", True),
        ("nothing", False),  # without the first step
        ("tighten", False),
        ("nothing", False),  # with it
        ("tighten", True),
    ]
    assert outcome.steps[0].why.reason is StepReason.NEEDED_LATER
    assert str(outcome.steps[0].why).startswith("helps with what follows: sqnr_db")
    assert outcome.after.value > outcome.before.value + 4
    assert evaluator(outcome.state) == outcome.after

    alone, _ = improve_coarse(ready, staged("loosen", "nothing", finish=("tighten",)))
    assert not any(step.applied for step in alone.steps)
    unneeded, _ = improve_coarse(ready, replace(LOOSENED_AND_TIGHTENED, finish=("repair",)))
    assert [step.name for step in unneeded.steps] == ["loosen", "nothing", "repair"]
    assert [step.applied for step in unneeded.steps] == [False, False, True]  # as good without the first step


@pytest.mark.usefixtures("steps")
def test_what_was_promised_and_did_not_come_costs_nothing(ready: Calibrated) -> None:
    def recalibrate(state: State, samples: Samples | None) -> State:
        return state if samples is not None else scaled(state, 8.0)

    schedule = replace(LOOSENED_AND_TIGHTENED, stages=(LOOSENED, Stage(("repair_a_little",)), Stage(("nothing",))))
    outcome, evaluator = improve_coarse(ready, schedule, recalibrate)
    assert [(step.name, step.applied) for step in outcome.steps if step.after is not None] == [
        ("loosen", False),
        ("repair_a_little", True),
        ("tighten", False),
        ("repair_a_little", False),  # of what was recalibrated
        ("tighten", False),
    ]
    assert evaluator(outcome.state) == outcome.after
    plain, _ = improve_coarse(ready, staged("loosen", "repair_a_little", "nothing", finish=("tighten",)), recalibrate)
    assert outcome.after == plain.after


@pytest.mark.usefixtures("steps")
def test_steps_behind_a_promise_may_stay_below_what_calibration_made(ready: Calibrated) -> None:
    def recalibrate(state: State, samples: Samples | None) -> State:
        return state if samples is not None else scaled(state, 5.0)

    schedule = replace(LOOSENED_AND_TIGHTENED, stages=(LOOSENED, Stage(("tighten",)), Stage(("nothing",))))
    outcome, _ = improve_coarse(ready, schedule, recalibrate)
    applied = [step for step in outcome.steps if step.applied]
    assert [step.name for step in applied] == ["loosen", "tighten", "tighten"]
    assert applied[1].after is not None
    assert applied[1].after.value < outcome.before.value < outcome.after.value - 4


@pytest.mark.usefixtures("steps")
def test_an_error_of_what_finishes_a_step_is_not_told_as_its_own(ready: Calibrated) -> None:
    outcome, _ = improve_coarse(ready, replace(LOOSENED_AND_TIGHTENED, finish=("impossible",)))
    first, _, last = outcome.steps
    assert str(first.why).startswith("did not help: sqnr_db")
    assert str(last.why) == "not possible here: no layer of this kind"


@pytest.mark.usefixtures("steps")
def test_roundings_start_from_the_prepared_state_and_each_is_finished(ready: Calibrated) -> None:
    roundings = (Roundings(("damage", "repair_a_little")),)
    outcome, _ = improve_coarse(ready, replace(staged("nothing", finish=("repair_a_little",)), roundings=roundings))
    applied = [step.name for step in outcome.steps if step.applied]
    assert applied == ["repair_a_little", "repair_a_little"]  # the rounding, and what finished it
    assert [step.name for step in outcome.steps].count("repair_a_little") == 4


@pytest.mark.usefixtures("steps")
def test_a_run_tells_what_each_effort_below_it_came_to(ready: Calibrated) -> None:
    roundings = tuple(Roundings((name,)) for name in ("repair_a_little", "damage", "repair"))
    whole = Schedule((Stage(("nothing",)),), roundings, preset=True)
    seen: list[tuple[Level, State]] = []
    outcome, evaluator = improve_coarse(ready, whole, reached=lambda level, state: seen.append((level, state)))
    assert [level for level, _ in seen] == list(outcome.levels)
    assert [level.effort for level in outcome.levels] == [1, 2, 3, 4]
    for number, (level, state) in enumerate(seen):
        alone, _ = improve_coarse(ready, replace(whole, roundings=roundings[:number]))
        assert level.score == alone.after == evaluator(state)
    assert [level.seconds for level in outcome.levels] == sorted(level.seconds for level in outcome.levels)
    assert outcome.to_json()["levels"][-1]["after"] == outcome.to_json()["after"]
    named, _ = improve_coarse(ready, Schedule.of_names(["repair"]))
    assert named.levels == ()  # what is asked for by name is no effort


@pytest.mark.usefixtures("steps")
def test_further_stages_begin_anew_and_count_where_they_are_better(ready: Calibrated) -> None:
    quick = (Stage(("repair_a_little",)),)
    for further, applied in (("repair", ["repair"]), ("damage", ["repair_a_little"])):
        whole = Schedule(quick, further=(Stage((further,)),), preset=True)
        outcome, evaluator = improve_coarse(ready, whole)
        assert [step.name for step in outcome.steps if step.applied] == applied
        assert [step.name for step in outcome.steps] == ["repair_a_little", further]
        assert outcome.levels[0].score == improve_coarse(ready, Schedule(quick, preset=True))[0].after
        assert outcome.after == evaluator(outcome.state)
    assert whole.without(frozenset(("damage",))).further == ()


@pytest.mark.usefixtures("steps")
@pytest.mark.parametrize("enough", [True, False])
def test_one_accepted_method_can_be_enough(ready: Calibrated, enough: bool) -> None:
    stage = Stage(("nothing", "repair_a_little", "repair"), one_is_enough=enough)
    outcome, _ = improve_coarse(ready, Schedule((stage, Stage(("nothing",)))))
    tried = [step.name for step in outcome.steps]
    assert tried == (["nothing", "repair_a_little", "nothing"] if enough else [*stage.methods, "nothing"])


@pytest.mark.usefixtures("steps")
def test_the_state_that_was_given_is_not_changed(ready: Calibrated) -> None:
    before = {name: ready.state.qparams[name] for name in ready.state.qparams}
    improve_coarse(ready, Schedule.of_names(["repair", "damage"]))
    assert all(ready.state.qparams[name] == held for name, held in before.items())


def test_names_and_arguments_are_checked_before_anything_runs(ready: Calibrated) -> None:
    with pytest.raises(ConfigError, match=r"unknown improvement 'range_seting'\. Did you mean 'range_setting'"):
        improve_coarse(ready, Schedule.of_names(["range_seting"]))
    with pytest.raises(ConfigError, match=r"improvement 'range_setting' has no argument 'obsever'.*'observer'"):
        improve_coarse(ready, Schedule.of_names(["range_setting:obsever=mse"]))


def test_a_model_that_is_near_enough_is_left_alone(ready: Calibrated) -> None:
    split = split_samples(ready.session.dataset)
    assert split is not None
    evaluator = Evaluator(ready.session.original, ready.session.prepared.backend, split.held_out)
    plan = replace(ready.state.plan, placements={}, quantized={})
    state = State(ready.state.graph, plan, ready.state.qparams)
    outcome = improve(
        state, Task(state.graph, ready.session.prepared.backend, split.fitted), evaluator, schedule_of(1), lambda s: s
    )
    assert outcome.steps == ()
    assert outcome.state is state


def test_each_effort_tries_what_the_one_below_tries() -> None:
    for level in LEVELS[1:]:
        assert set(schedule_of(level - 1).names()) <= set(schedule_of(level).names())


@pytest.mark.usefixtures("steps")
def test_what_changes_nothing_with_any_arguments_is_looked_at_once(ready: Calibrated) -> None:
    for name, tried in (("hopeless", 1), ("nothing", 2)):
        outcome, _ = improve_coarse(ready, Schedule((Stage((name, name, "repair")),)))
        assert [step.name for step in outcome.steps] == [name] * tried + ["repair"]


@pytest.mark.usefixtures("steps")
def test_slow_roundings_are_tried_where_float_weights_would_gain(ready: Calibrated) -> None:
    slow = Roundings(("nothing", "damage"), slow=frozenset({"damage"}))
    schedule = Schedule((), (slow,), preset=True)
    loud_activations, _ = improve_coarse(ready, schedule)
    assert [step.why.reason for step in loud_activations.steps] == [StepReason.NOTHING_TO_CHANGE, StepReason.NO_ROOM]
    assert "with float weights the model would be better by 0." in str(loud_activations.steps[1].why)
    loud_weights, _ = improve_coarse(ready, schedule, role="weight")
    assert [step.why.reason for step in loud_weights.steps] == [StepReason.NOTHING_TO_CHANGE, StepReason.NO_GAIN]
    asked_for, _ = improve_coarse(ready, replace(schedule, named=frozenset({"damage"})))
    assert asked_for.steps[1].why.reason is StepReason.NO_GAIN


@pytest.mark.usefixtures("steps")
def test_what_is_learnt_goes_on_from_the_best_rounding(ready: Calibrated) -> None:
    improvement("round_well", "a step of a test", "none", rounds=True)(STEPS["repair_a_little"])
    try:
        names = ("round_well", "repair_a_little")
        apart, _ = improve_coarse(ready, Schedule((), (Roundings(names),)))
        learnt = Roundings(names, behind=frozenset({"repair_a_little"}))
        behind, _ = improve_coarse(ready, Schedule((), (learnt,)))
    finally:
        IMPROVEMENTS.forget("round_well")
    assert [step.applied for step in apart.steps] == [True, False]
    assert [step.applied for step in behind.steps] == [True, True]
    assert behind.after.value > apart.after.value + 2


@pytest.mark.usefixtures("steps")
def test_what_was_tried_from_the_same_state_is_not_tried_again(ready: Calibrated) -> None:
    stages = (Stage(("damage",)), Stage(("repair_a_little",)))
    outcome, _ = improve_coarse(ready, Schedule(stages, further=(*stages, Stage(("repair",))), preset=True))
    assert [(step.name, step.applied) for step in outcome.steps] == [
        ("damage", False),
        ("repair_a_little", True),
        ("repair", False),  # behind what was known of the others
    ]
