"""Samples that a step was not fitted to decide: what helps the seen ones alone is dropped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from onnxq.demo import load_data, model_path
from onnxq.numerics import SqnrAccumulator
from onnxq.ptq.method import IMPROVEMENTS, Chosen, Samples, State, Task
from onnxq.ptq.search.candidates import Candidate, Scores
from onnxq.ptq.search.evaluator import Evaluator, Score
from onnxq.ptq.search.reasons import StepReason
from onnxq.ptq.search.run import _Search, improve
from onnxq.ptq.search.schedule import Roundings, Schedule
from onnxq.quantize import quantize
from onnxq.runtime.session import make_session
from onnxq.session.session import Calibrated
from tests.ptq.search.known_steps import as_it_is, improve_coarse, scaled


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
        return scaled(state, 8.0 if samples is not None and seen_only else 0.25)

    outcome, _ = improve_coarse(ready, Schedule.of_names(["equalize"]), recalibrate)
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
        return scaled(state, 1 / 64) if clips and len(asked) == 2 else state

    outcome, _ = improve_coarse(ready, Schedule.of_names(["observe"]), recalibrate)
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
    scores = Scores(evaluator, [fit_evaluator], Samples(ready.session.dataset, ()), as_it_is)
    before = Candidate(old, evaluator(old), graph)
    after = Candidate(new, evaluator(new), graph, path=(0,), rounded_by=(0,) if rounds else ())
    assert scores.test(after, before).accepts == kept
    for above, enough in ((0.0, True), (6.0, False)):  # calibration alone was as good as before, or far better
        calibrated = replace(before, least=before.score.goodness + above)
        assert scores.test(after, calibrated).accepts == (kept and enough)


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
    outcome = improve(first, task, evaluator, schedule, as_it_is, further=[_Told(others, 12)])
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
