"""Which steps of a search there is time for.

Before each step the rule is the same: it is run if it fits into what is left of the time together with all steps to
come that gain more, and with what has to be done behind the search. So steps that gain little are left out first, and
the order of the schedule stays. A step that turns out to take longer than was expected is broken off. What was left
out is part of the report; a configuration that names these steps (`skip_steps`) repeats the run on any machine.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from onnxq.errors import ConfigError
from onnxq.progress import OutOfTime, TimeLimit, Tracker
from onnxq.progress.durations import duration_text
from onnxq.progress.time_limit import LeftOut, Part
from onnxq.ptq.method import Chosen
from onnxq.ptq.search.costs import FIRST_EVALUATION, KIND, cost_of, in_order, stage_of
from onnxq.ptq.search.evaluator import Score
from onnxq.ptq.search.reasons import StepReason, Why
from onnxq.ptq.search.schedule import Schedule

BEHIND = ("emit", "verify", "page")
"""Kinds of stages that follow a search and are not left out."""

SURE = 0.2
"""Share of a step that tells how long all of it takes."""

WATCHED = 0.02
"""Share of the limit for which a step is watched before its pace is believed: first pieces load libraries and are those
of the largest images, and AdaRound on MobileNetV2 looked like 24 minutes after a second, and took one."""

OVERSHOOT = 0.1
"""By how much of the limit a step may be expected to miss its time and still go on: forecasts are not that good."""


@dataclass
class _Running:
    """The step that is run: when it began and has to be over, where its present phase began, and what it will take."""

    chosen: Chosen
    number: int
    begun: float
    end: float
    phase: float
    done: int = 0
    forecast: float = 0.0


class Allowance:
    """Decides about the steps of one search, and tells a tracker about them; without a limit there is time for all.

    `skipped` are steps to leave out by their numbers, from 1 on, with their names.
    """

    def __init__(
        self, tracker: Tracker | None = None, limit: TimeLimit | None = None, skipped: Mapping[int, str] | None = None
    ) -> None:
        self.tracker = tracker or Tracker()
        self._limit = limit
        self._skipped = dict(skipped or {})
        self._ahead: list[str] = []
        self._finish: tuple[str, ...] = ()
        self._running: _Running | None = None

    def announce(self, schedule: Schedule, methods: Mapping[str, Chosen]) -> None:
        """What the search will do, for who waits."""
        self._ahead, self._finish = list(in_order(schedule)), schedule.finish
        self.tracker.drop(KIND)
        self.tracker.expect(KIND, FIRST_EVALUATION)
        for name in self._ahead:
            self.tracker.expect(stage_of(methods[name]), cost_of(name).rounds)
        self.tracker(KIND, 0, None)

    def first_evaluated(self, score: Score) -> None:
        """The calibrated model has its score: what that took is the least that any step takes."""
        running = self.tracker.running
        if running is not None and running.name == KIND:
            self.tracker.end_round(at_least=running.seconds(self.tracker.now()))
        self.scored(score)

    def scored(self, score: Score) -> None:
        """What the search has come to so far."""
        if score.in_db:
            self.tracker.scored(score.value)

    def begin(self, name: str, chosen: Chosen, number: int) -> Why | None:
        """Why the step of this number is left out; None where it is run, until `end`."""
        if name in self._ahead:
            self._ahead.remove(name)
        asked = self._skipped.pop(number, None)
        if asked is not None and asked != str(chosen):
            raise ConfigError(
                f"skip_steps: step {number} is {chosen} here, not {asked}: the list belongs to a run of another model, "
                "other data or another version"
            )
        if asked is not None:
            self.tracker.drop(stage_of(chosen))
            return Why(StepReason.SKIPPED, "the configuration leaves it out (skip_steps)")
        if self._limit is None:
            return None
        expected = self._seconds([name, *(self._finish if chosen.method.rounds else ())])
        better = [other for other in self._ahead if cost_of(other).gain_db > cost_of(name).gain_db]
        end = self._limit.remaining - self._reserve()
        if expected + self._seconds(_once(better)) > end:
            self.tracker.drop(stage_of(chosen))
            return self._left_out(chosen, number, expected, begun=False)
        now = self._limit.now()
        self._running = _Running(chosen, number, now, now + end, now)
        return None

    def check(self, done: int = 0, total: int | None = None) -> None:
        """Raise OutOfTime where the running step, which has come so far, will not be over in time."""
        running = self._running
        if running is None or self._limit is None:
            return
        now = self._limit.now()
        if not done or done < running.done:  # what comes before the first piece says nothing about the others
            running.phase = now
        running.done = done
        late = now - running.end
        if total and 0 < done < total and now - running.phase >= WATCHED * self._limit.seconds:
            rest = (now - running.phase) * (total - done) / done
            running.forecast = now + rest - running.begun
            # What the first pieces say is taken for true only where it is far beyond the limit.
            late = max(late, late + rest - self._limit.seconds * (OVERSHOOT if done >= SURE * total else 1.0))
        if late > 0:
            raise OutOfTime

    def broken_off(self, chosen: Chosen, number: int) -> Why:
        """What to say of a step that `check` has ended: it would take what its pieces said, if that is more."""
        forecast = self._running.forecast if self._running is not None else 0.0
        return self._left_out(chosen, number, max(forecast, self._seconds([str(chosen)])), begun=True)

    def end(self, chosen: Chosen, *, whole: bool = True) -> None:
        """The step is over; one that was not `whole`, because it had nothing to change, tells nothing about others."""
        self._running = None
        self.tracker.close(stage_of(chosen), learn=whole)

    def not_needed(self, names: Sequence[str], methods: Mapping[str, Chosen]) -> None:
        """Steps that are not tried, because one before them was accepted."""
        for name in names:
            if name in self._ahead:
                self._ahead.remove(name)
            self.tracker.drop(stage_of(methods[name]))

    def over(self) -> None:
        """The search has ended; what `skipped` names and was never met is an error, as any setting without effect."""
        self.tracker.drop_kind(KIND)
        if self._skipped:
            listed = ", ".join(f"{number}:{name}" for number, name in sorted(self._skipped.items()))
            raise ConfigError(
                f"skip_steps: {listed} did not come up: the list belongs to a run of another model, other data or "
                "another version"
            )

    def is_enough_for(self, names: Collection[str]) -> bool:
        """Whether there is time to evaluate the calibrated model and to try any of these steps."""
        if self._limit is None or not names:
            return True
        least = min(self._seconds([name]) for name in names)
        first = self.tracker.seconds_of(KIND, FIRST_EVALUATION) or 0.0
        return first + least <= self._limit.remaining - self._reserve()

    def leave_out_all(self, names: Sequence[str]) -> None:
        """Note every step of a search that is not begun."""
        assert self._limit is not None
        for name in names:
            self._limit.left_out.append(LeftOut(Part.STEP, name, None, self._seconds([name])))

    def _left_out(self, chosen: Chosen, number: int, expected: float, *, begun: bool) -> Why:
        assert self._limit is not None
        left_out = LeftOut(Part.STEP, str(chosen), number, expected or None, begun)
        self._limit.left_out.append(left_out)
        said = f"it would take about {duration_text(expected)}"
        return Why(StepReason.TIME_LIMIT, "broken off when it took longer than expected" if begun else said)

    def _seconds(self, names: Sequence[str]) -> float:
        return sum(self.tracker.seconds_of(KIND, cost_of(name).rounds) or 0.0 for name in names)

    def _reserve(self) -> float:
        return self.tracker.announced(BEHIND)


def _once(names: Sequence[str]) -> list[str]:
    """A method that finishes several others may be tried once at least."""
    return list(dict.fromkeys(names))


def read_skipped(texts: Sequence[str]) -> dict[int, str]:
    """Number -> step, from texts such as "3:gptq:act_order=no", which the configuration has checked."""
    parts = (text.partition(":") for text in texts)
    return {int(number): name for number, _, name in parts}
