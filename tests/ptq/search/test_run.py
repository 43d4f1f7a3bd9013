"""Improvements: what helps on the held samples is kept, what does not is dropped, and every step is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from onnxq.demo import load_data, model_path
from onnxq.errors import ConfigError, UnsupportedError
from onnxq.numerics import SqnrAccumulator
from onnxq.ptq.method import IMPROVEMENTS, Chosen, Improved, Samples, State, Task, improvement
from onnxq.ptq.search.candidates import Candidate, Recalibrate, Scores, settled
from onnxq.ptq.search.evaluator import Evaluator, Score
from onnxq.ptq.search.outcome import Level, Outcome, Reached
from onnxq.ptq.search.reasons import StepReason
from onnxq.ptq.search.run import _Search, improve
from onnxq.ptq.search.sample_split import split_samples
from onnxq.ptq.search.schedule import LEVELS, Roundings, Schedule, Stage, schedule_of
from onnxq.quantize import quantize
from onnxq.runtime import input_infos, open_dataset
from onnxq.runtime.session import make_session
from onnxq.session.session import Calibrated, open_session
from onnxq.types import QParams

TRIED = (
    "equalize",
    "repair",
    "damage",
    "nothing",
    "impossible",
    "repair_a_little",
    "cut_off",
    "widen",
    "loosen",
    "tighten",
    "observe",
)


def _scaled(state: State, factor: float) -> State:
    """The state with activation scales multiplied: far from the calibrated ones is worse."""
    result = state.copy()
    for placement in result.plan:
        if placement.role == "activation" and placement.tie is None:
            held = result.qparams[placement.tensor]
            result.qparams.put(placement.tensor, QParams(held.spec, held.scale * factor, held.zero_point), "test")
    return result


def _step(factor: float) -> Callable[[State, Task], Improved]:
    return lambda state, task: Improved(_scaled(state, factor), changed=("all scales",))


def _impossible(state: State, task: Task) -> Improved:
    raise UnsupportedError("no layer of this kind")


@pytest.fixture
def steps() -> Iterator[None]:
    """Steps that are worth something known: the state of the tests has scales four times too large."""
    for name, function in {
        "repair": _step(0.25),
        "repair_a_little": _step(0.5),
        "damage": _step(8.0),
        "cut_off": _step(1 / 64),
        "widen": _step(16.0),
        "loosen": lambda state, task: Improved(_scaled(state, 1.225), changed=("all scales",), recalibrate=True),
        "tighten": _step(0.22),
        "equalize": lambda state, task: Improved(state.copy(), changed=("a layer",), recalibrate=True),
        "observe": lambda state, task: Improved(_scaled(state, 0.25), changed=("all ranges",), follows_plan=True),
        "nothing": lambda state, task: Improved(state, declined=("no layer",)),
        "impossible": _impossible,
    }.items():
        improvement(name, "a step of a test", "none")(function)
    yield
    for name in TRIED:
        IMPROVEMENTS.forget(name)


@pytest.fixture(scope="module")
def ready() -> Calibrated:
    return open_session(model_path(), backend="tensorrt", data={"image": load_data().calibration[:16]}).calibrated()


def staged(*names: str, finish: tuple[str, ...] = ()) -> Schedule:
    return replace(Schedule.of_names(names), finish=finish)


def _as_it_is(state: State, samples: Samples | None) -> State:
    return state


def _improve(
    ready: Calibrated, schedule: Schedule, recalibrate: Recalibrate = _as_it_is, reached: Reached | None = None
) -> tuple[Outcome, Evaluator]:
    split = split_samples(ready.session.dataset)
    assert split is not None
    prepared = ready.session.prepared
    task = Task(prepared.graph, prepared.backend, split.fitted)
    evaluator = Evaluator(ready.session.original, prepared.backend, split.held_out)
    coarse = settled(_scaled(State(prepared.graph, ready.state.plan, ready.state.qparams), 4.0), prepared.backend)
    return improve(coarse, task, evaluator, schedule, recalibrate, reached=reached), evaluator


@pytest.mark.usefixtures("steps")
def test_what_helps_is_kept_and_what_does_not_is_dropped(ready: Calibrated) -> None:
    outcome, evaluator = _improve(ready, Schedule.of_names(("damage", "repair", "nothing", "impossible")))
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
    outcome, _ = _improve(ready, Schedule((Stage(("repair_a_little", "repair")),)))
    little, whole = outcome.steps
    assert not little.applied
    assert little.why.reason is StepReason.SUPERSEDED
    assert str(little.why).endswith("something else was better still")
    assert whole.applied
    twice, _ = _improve(ready, Schedule.of_names(("repair_a_little", "repair_a_little")))
    assert [step.applied for step in twice.steps] == [True, True]  # one after the other, not instead of each other


@pytest.mark.usefixtures("steps")
def test_what_only_helps_when_it_is_finished_is_kept(ready: Calibrated) -> None:
    outcome, _ = _improve(ready, staged("nothing", "cut_off", finish=("widen",)))
    assert [(step.name, step.applied) for step in outcome.steps] == [
        ("nothing", False),
        ("cut_off", True),
        ("widen", False),  # of the state that was not cut off
        ("widen", True),
    ]
    assert outcome.after.value > outcome.before.value + 6
    assert outcome.steps[1].why.reason is StepReason.NEEDED_LATER
    assert str(outcome.steps[1].why).startswith("helps with what follows: sqnr_db")
    useless, _ = _improve(ready, staged("damage", finish=("repair",)))
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
    outcome, evaluator = _improve(ready, LOOSENED_AND_TIGHTENED)
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

    alone, _ = _improve(ready, staged("loosen", "nothing", finish=("tighten",)))
    assert not any(step.applied for step in alone.steps)
    unneeded, _ = _improve(ready, replace(LOOSENED_AND_TIGHTENED, finish=("repair",)))
    assert [step.name for step in unneeded.steps] == ["loosen", "nothing", "repair"]
    assert [step.applied for step in unneeded.steps] == [False, False, True]  # as good without the first step


@pytest.mark.usefixtures("steps")
def test_what_was_promised_and_did_not_come_costs_nothing(ready: Calibrated) -> None:
    def recalibrate(state: State, samples: Samples | None) -> State:
        return state if samples is not None else _scaled(state, 8.0)

    schedule = replace(LOOSENED_AND_TIGHTENED, stages=(LOOSENED, Stage(("repair_a_little",)), Stage(("nothing",))))
    outcome, evaluator = _improve(ready, schedule, recalibrate)
    assert [(step.name, step.applied) for step in outcome.steps if step.after is not None] == [
        ("loosen", False),
        ("repair_a_little", True),
        ("tighten", False),
        ("repair_a_little", False),  # of what was recalibrated
        ("tighten", False),
    ]
    assert evaluator(outcome.state) == outcome.after
    plain, _ = _improve(ready, staged("loosen", "repair_a_little", "nothing", finish=("tighten",)), recalibrate)
    assert outcome.after == plain.after


@pytest.mark.usefixtures("steps")
def test_steps_behind_a_promise_may_stay_below_what_calibration_made(ready: Calibrated) -> None:
    def recalibrate(state: State, samples: Samples | None) -> State:
        return state if samples is not None else _scaled(state, 5.0)

    schedule = replace(LOOSENED_AND_TIGHTENED, stages=(LOOSENED, Stage(("tighten",)), Stage(("nothing",))))
    outcome, _ = _improve(ready, schedule, recalibrate)
    applied = [step for step in outcome.steps if step.applied]
    assert [step.name for step in applied] == ["loosen", "tighten", "tighten"]
    assert applied[1].after is not None
    assert applied[1].after.value < outcome.before.value < outcome.after.value - 4


@pytest.mark.usefixtures("steps")
def test_an_error_of_what_finishes_a_step_is_not_told_as_its_own(ready: Calibrated) -> None:
    outcome, _ = _improve(ready, replace(LOOSENED_AND_TIGHTENED, finish=("impossible",)))
    first, _, last = outcome.steps
    assert str(first.why).startswith("did not help: sqnr_db")
    assert str(last.why) == "not possible here: no layer of this kind"


@pytest.mark.usefixtures("steps")
def test_roundings_start_from_the_prepared_state_and_each_is_finished(ready: Calibrated) -> None:
    roundings = (Roundings(("damage", "repair_a_little")),)
    outcome, _ = _improve(ready, replace(staged("nothing", finish=("repair_a_little",)), roundings=roundings))
    applied = [step.name for step in outcome.steps if step.applied]
    assert applied == ["repair_a_little", "repair_a_little"]  # the rounding, and what finished it
    assert [step.name for step in outcome.steps].count("repair_a_little") == 4


@pytest.mark.parametrize(
    ("short", "follows"),
    [
        ({"damage": "equalize", "repair_a_little": "repair"}, ["repair"]),  # the better of the two, and only that
        ({"damage": "repair"}, []),  # far behind what is known already
        ({}, []),
    ],
)
@pytest.mark.usefixtures("steps")
def test_the_best_short_trial_is_followed_by_the_whole(
    ready: Calibrated, short: dict[str, str], follows: list[str]
) -> None:
    tried = ("damage", "repair_a_little")
    schedule = Schedule((Stage(("nothing",)),), (Roundings(tried, short),), preset=True)
    outcome, _ = _improve(ready, schedule)
    assert [step.name for step in outcome.steps] == ["nothing", *tried, *follows]
    assert [step.applied for step in outcome.steps][-1]
    assert schedule.names() == ["nothing", *tried, *short.values()]


@pytest.mark.usefixtures("steps")
def test_a_run_tells_what_each_effort_below_it_came_to(ready: Calibrated) -> None:
    roundings = tuple(Roundings((name,)) for name in ("repair_a_little", "damage", "repair"))
    whole = Schedule((Stage(("nothing",)),), roundings, preset=True)
    seen: list[tuple[Level, State]] = []
    outcome, evaluator = _improve(ready, whole, reached=lambda level, state: seen.append((level, state)))
    assert [level for level, _ in seen] == list(outcome.levels)
    assert [level.effort for level in outcome.levels] == [1, 2, 3, 4]
    for number, (level, state) in enumerate(seen):
        alone, _ = _improve(ready, replace(whole, roundings=roundings[:number]))
        assert level.score == alone.after == evaluator(state)
    assert [level.seconds for level in outcome.levels] == sorted(level.seconds for level in outcome.levels)
    assert outcome.to_json()["levels"][-1]["after"] == outcome.to_json()["after"]
    named, _ = _improve(ready, Schedule.of_names(["repair"]))
    assert named.levels == ()  # what is asked for by name is no effort


@pytest.mark.usefixtures("steps")
def test_the_state_that_was_given_is_not_changed(ready: Calibrated) -> None:
    before = {name: ready.state.qparams[name] for name in ready.state.qparams}
    _improve(ready, Schedule.of_names(["repair", "damage"]))
    assert all(ready.state.qparams[name] == held for name, held in before.items())


def test_names_and_arguments_are_checked_before_anything_runs(ready: Calibrated) -> None:
    with pytest.raises(ConfigError, match=r"unknown improvement 'range_seting'\. Did you mean 'range_setting'"):
        _improve(ready, Schedule.of_names(["range_seting"]))
    with pytest.raises(ConfigError, match=r"improvement 'range_setting' has no argument 'obsever'.*'observer'"):
        _improve(ready, Schedule.of_names(["range_setting:obsever=mse"]))


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


@pytest.mark.usefixtures("steps")
@pytest.mark.parametrize("seen_only", [True, False])
def test_a_new_calibration_must_help_samples_that_it_has_not_seen(ready: Calibrated, seen_only: bool) -> None:
    """Ranges of all samples make the step look good in both cases; those without the held ones tell them apart."""
    given: list[State] = []

    def recalibrate(state: State, samples: Samples | None) -> State:
        given.append(state)
        changed = state is not given[0]  # what the run begins with is asked for first
        if not changed:
            return state
        return _scaled(state, 8.0 if samples is not None and seen_only else 0.25)

    outcome, _ = _improve(ready, Schedule.of_names(["equalize"]), recalibrate)
    (step,) = outcome.steps
    assert step.applied is not seen_only
    assert (step.why.reason is StepReason.UNSEEN_RANGES) is seen_only
    assert step.before is not None
    assert step.after is not None
    assert (step.after.value < step.before.value) is seen_only


@pytest.mark.usefixtures("steps")
@pytest.mark.parametrize("clips", [True, False])
def test_ranges_of_another_observer_must_help_samples_that_they_were_not_found_by(
    ready: Calibrated, clips: bool
) -> None:
    """The step's own parameters look good in both cases; those without the held samples clip these in one of them."""
    asked: list[Samples | None] = []

    def recalibrate(state: State, samples: Samples | None) -> State:
        asked.append(samples)
        return _scaled(state, 1 / 64) if clips and len(asked) == 2 else state

    outcome, _ = _improve(ready, Schedule.of_names(["observe"]), recalibrate)
    (step,) = outcome.steps
    assert step.applied is not clips
    assert (step.why.reason is StepReason.UNSEEN_RANGES) is clips
    assert len(asked) == 2  # before and after, on the fitted samples alone; the parameters themselves stay
    assert None not in asked


class _Told(Evaluator):
    """An evaluator of so many samples that says of each state what it was told."""

    def __init__(self, scores: dict[int, Score], count: int) -> None:
        self._scores, self._count = scores, count

    @property
    def samples(self) -> int:
        return self._count

    def __call__(self, state: State) -> Score:
        return self._scores[id(state)]


def _said(*noise: float) -> Score:
    """The score of samples with a signal of 100 each."""
    value = 10 * np.log10(100 * len(noise) / sum(noise))
    return Score("sqnr_db", value, value, {"y": value}, {"y": np.array(noise)})


@pytest.mark.parametrize(
    ("held", "others", "rounds", "kept"),
    [
        ((0.8, 1.0, 0.8, 0.9), (0.5,) * 12, False, True),
        ((0.8, 1.0, 0.8, 0.9), (0.5,) * 12, True, True),
        ((0.8, 0.9, 2.0, 0.8), (0.5,) * 12, False, True),  # one held sample of four speaks against twelve others
        ((0.8, 0.9, 2.0, 0.8), (0.5,) * 12, True, False),  # which the rounding was fitted to
        ((2.0, 2.1, 2.0, 2.1), (0.5,) * 12, False, False),  # all held ones do: that is no chance
        ((0.8, 1.0, 0.8, 0.9), (1.1,) * 12, False, False),  # the others do not confirm it
        ((0.8, 1.0, 0.8, 0.9), (1.1,) * 12, True, False),
    ],
)
def test_held_samples_decide_alone_where_others_were_fitted_to_weight_by_weight(
    ready: Calibrated, held: tuple[float, ...], others: tuple[float, ...], rounds: bool, kept: bool
) -> None:
    graph = ready.state.graph
    old, new = (State(graph, ready.state.plan, ready.state.qparams) for _ in range(2))
    evaluator = _Told({id(old): _said(1, 1, 1, 1), id(new): _said(*held)}, 4)
    fit_evaluator = _Told({id(old): _said(*[1] * 12), id(new): _said(*others)}, 12)
    scores = Scores(evaluator, fit_evaluator, Samples(ready.session.dataset, ()), _as_it_is)
    before = Candidate(old, evaluator(old), graph)
    after = Candidate(new, evaluator(new), graph, path=(0,), rounded_by=(0,) if rounds else ())
    assert scores.test(after, before).accepts == kept
    calibrated = replace(before, least=before.score.goodness)
    assert scores.test(after, calibrated).accepts == (kept and evaluator(new).goodness >= evaluator(old).goodness)


def test_a_rounding_that_helps_is_not_lost_by_what_finishes_it(
    ready: Calibrated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finished, all samples together gain and the held ones lose by chance: less than it must gain alone."""
    graph = ready.state.graph
    first, rounded, finished = (State(graph, ready.state.plan, ready.state.qparams) for _ in range(3))
    held = {id(first): _said(1, 1, 1, 1), id(rounded): _said(0.9, 0.85, 0.9, 0.9)}
    held[id(finished)] = _said(0.7, 0.75, 1.85, 0.72)
    others = {id(first): _said(*[1] * 12), id(rounded): _said(*[0.6] * 12), id(finished): _said(*[0.5] * 12)}
    after = {id(first): rounded, id(rounded): finished}
    evaluator = _Told(held, 4)

    def attempt(
        self: _Search, base: Candidate, name: str, to_beat: Candidate, *, deferrable: bool = False
    ) -> Candidate | None:
        state = after.get(id(base.state)) if name == "round" or base.rounded_by else None
        if state is None:
            return None
        number = len(base.path)
        rounded_by = (*base.rounded_by, number) if name == "round" else base.rounded_by
        path = (*base.path, number)
        return Candidate(state, evaluator(state), graph, base.least, path, rounded_by=rounded_by)

    monkeypatch.setattr(_Search, "attempt", attempt)
    monkeypatch.setattr("onnxq.ptq.search.run.read_improvement", lambda name: Chosen(IMPROVEMENTS.get("gptq"), {}))
    task = Task(graph, ready.session.prepared.backend, Samples(ready.session.dataset, ()))
    schedule = Schedule((), (Roundings(("round",)),), ("finish",), preset=True)
    outcome = improve(first, task, evaluator, schedule, _as_it_is, fit_evaluator=_Told(others, 12))
    assert outcome.state is rounded


def test_few_samples_do_not_make_unseen_ones_worse(tmp_path: Path) -> None:
    """Channels brought to the largest values of 16 images would cut off those of all others."""
    data = load_data()
    found = []
    for effort in (0, 1):
        result = quantize(
            model_path(),
            backend="academic",
            data={"image": data.calibration[:16]},
            out=tmp_path / str(effort),
            config={"effort": effort},
        )
        sessions = [make_session(path, threads=1, optimize="none") for path in (model_path(), result.model)]
        total = SqnrAccumulator()
        for image in data.test_images[:100]:
            total.add(*(session.run(None, {"image": image[None]})[0] for session in sessions))
        found.append(total.value)
    assert found[1] > found[0]


@pytest.mark.parametrize("count", [4, 5, 7, 8, 9, 64, 700])
def test_samples_that_judge_are_not_those_that_fit(count: int) -> None:
    from onnxq.graph import Graph

    image = np.zeros((count, 1, 8, 8), np.float32)
    image[:, 0, 0, 0] = np.arange(count)
    split = split_samples(open_dataset({"image": image}, input_infos(Graph.load(model_path()))))
    assert split is not None
    fitted = [float(feed["image"][0, 0, 0, 0]) for feed in split.fitted]
    held = [float(feed["image"][0, 0, 0, 0]) for feed in split.held_out]
    assert fitted == list(split.fitted.numbers)
    assert held == list(split.held_out.numbers)
    assert not set(fitted) & set(held)
    assert len(fitted) == len(split.fitted) <= 512
    assert 1 <= len(held) <= 32


def test_each_effort_tries_what_the_one_below_tries() -> None:
    for level in LEVELS[1:]:
        assert set(schedule_of(level - 1).names()) <= set(schedule_of(level).names())
