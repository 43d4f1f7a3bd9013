"""How far a whole run is: what its stages have taken, and what those ahead will take by what was measured so far.

Stages ahead are announced with their cost in rounds: a round is what the stage takes that they are measured by
(calibration, for most). So nothing is said about the time left before that stage has shown its pace. Costs are
corrected while the run goes on: steps that take twice what was expected make those of the same kind ahead dearer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from onnxq.progress.report import Progress, silent

MOST_BEFORE_THE_END = 0.99
"""Only a run that has ended is done."""

STILL_TO_COME = 0.05
"""Of what a stage was expected to take, where it has taken all of that and is not finished."""


BELIEVED = 3.0
"""Rounds that have to be measured until they count as much as what was expected."""


@dataclass
class Stage:
    """One that has begun. `first` is when; `spent` and `since` are its time before, and when it was taken up again.

    `expected` is all that it will have taken; `announced` is what was said of it before anything was learnt.
    """

    name: str
    first: float
    since: float | None
    spent: float = 0.0
    expected: float | None = None
    announced: float | None = None
    times: int = 1
    done: int = 0
    total: int | None = None
    numbers: str = ""

    @property
    def open(self) -> bool:
        """Whether more of it is known to come."""
        return self.since is not None or (self.total is not None and self.done < self.total)

    def seconds(self, now: float) -> float:
        return self.spent + (0.0 if self.since is None else now - self.since)

    def left(self, now: float) -> float | None:
        """Seconds that it still takes; None where nothing tells."""
        counted = None
        if self.total is not None and self.done > 0:
            counted = (now - self.first) * max(self.total - self.done, 0) / self.done
        if self.expected is None:
            return counted
        guessed = max(self.expected - self.seconds(now), STILL_TO_COME * self.expected)
        if counted is None or self.total is None:
            return guessed
        share = min(self.done / self.total, 1.0)  # the more of it is done, the more its own pace counts
        return share * counted + (1 - share) * min(guessed, 10 * counted + guessed / 2)


@dataclass(frozen=True)
class Ahead:
    """A stage that is to come, with its cost in rounds; None where nobody can say it."""

    stage: str
    rounds: float | None


@dataclass
class _Learnt:
    """What stages of one kind have taken, and what was expected of them."""

    measured: float = 0.0
    expected: float = 0.0


@dataclass(frozen=True)
class View:
    """What there is to show at a moment, `now` by the clock."""

    now: float
    share: float
    elapsed: float
    left: float | None
    db: float | None
    lines: tuple[Stage, ...]


@dataclass
class Tracker:
    """Follows a run; it is what stages report to, and passes that on to `listener`.

    now      the clock, in seconds
    db       the SQNR that the run has come to, once it is known
    """

    listener: Progress = silent
    now: Callable[[], float] = time.perf_counter
    db: float | None = None
    stages: list[Stage] = field(default_factory=list)
    ahead: list[Ahead] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.started = self.now()
        self._measure: str | None = None
        self._round: float | None = None
        self._learnt: dict[str, _Learnt] = {}
        self._share = 0.0
        self._finished = False

    # ---- what a run tells ------------------------------------------------------------------------------------------

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        """A stage has done so much; one that was announced ends those before it."""
        now, running = self.now(), self.running
        if running is None or running.name != stage:
            announced = next((one for one in self.ahead if one.stage == stage), None)
            if announced is not None:
                self._close_all(now)
            elif running is not None:
                _pause(running, now)
            running = self._taken_up(stage, announced, now)
        running.done, running.total = done, total
        self.listener(stage, done, total)

    def measure_by(self, stage: str) -> None:
        """A round is what this stage takes."""
        self._measure = stage

    def end_round(self, at_least: float = 0.0) -> None:
        """A round is over, whether its stage has told anything or not; it counts as `at_least` so many seconds."""
        if self._round is None:
            stage = None if self._measure is None else self._of(self._measure)
            self._round = 0.0 if stage is None else stage.seconds(self.now())
        self._round = max(self._round, at_least)

    def expect(self, stage: str, rounds: float | None) -> None:
        """Announce a stage; whoever announces them does so in their order."""
        self.ahead.append(Ahead(stage, rounds))

    def drop(self, stage: str) -> None:
        """The next stage of this name does not come."""
        found = next((one for one in self.ahead if one.stage == stage), None)
        if found is not None:
            self.ahead.remove(found)

    def drop_kind(self, kind: str) -> None:
        """No more stages of this kind come."""
        self.ahead = [one for one in self.ahead if _kind(one.stage) != kind]

    def close(self, stage: str, *, learn: bool = True) -> None:
        """A stage is over, whatever it has counted; without `learn` its time says nothing about others."""
        now, found = self.now(), self._of(stage)
        if found is not None:
            found.announced = found.announced if learn else None
            self._end(found, now)

    def scored(self, db: float | None) -> None:
        """The SQNR that the run has come to so far."""
        self.db = db

    def tell(self, numbers: str) -> None:
        """Numbers beside the running stage."""
        if self.running is not None:
            self.running.numbers = numbers

    def finish(self) -> None:
        self._close_all(self.now())
        self.ahead, self._finished = [], True

    # ---- what can be asked ----------------------------------------------------------------------------------------

    @property
    def running(self) -> Stage | None:
        return next((stage for stage in reversed(self.stages) if stage.since is not None), None)

    def elapsed(self) -> float:
        return self.now() - self.started

    def round_seconds(self) -> float | None:
        """What a round takes; None before anything tells."""
        if self._round is not None or self._measure is None:
            return self._round
        stage, now = self._of(self._measure), self.now()
        rest = None if stage is None else stage.left(now)
        return None if stage is None or rest is None else stage.seconds(now) + rest

    def seconds_of(self, stage: str, rounds: float) -> float | None:
        """What a stage of so many rounds takes, by what others of its kind have taken."""
        unit = self.round_seconds()
        return None if unit is None else rounds * unit * self._correction(stage)

    def announced(self, kinds: Collection[str]) -> float:
        """Seconds that announced stages of these kinds take, as far as anything tells."""
        stages = [one for one in self.ahead if one.rounds is not None and _kind(one.stage) in kinds]
        return sum(self.seconds_of(one.stage, one.rounds or 0.0) or 0.0 for one in stages)

    def left(self) -> float | None:
        """Seconds until the end of the run; None before anything tells."""
        now, rest = self.now(), 0.0
        for stage in self.stages:
            if stage.open:
                of_stage = stage.left(now)
                if of_stage is None and stage.total is not None and not stage.done:
                    return None  # it will tell soon
                rest = max(rest, of_stage or 0.0)  # the one inside another is part of it
        for one in self.ahead:
            seconds = None if one.rounds is None else self.seconds_of(one.stage, one.rounds)
            if seconds is None:
                return None
            rest += seconds
        told = any(stage.open and not (stage.total is None and stage.expected is None) for stage in self.stages)
        return rest if self.ahead or told else None

    def share(self) -> float:
        """What is done of the run, from 0 to 1; it never falls."""
        if self._finished:
            return 1.0
        left, elapsed = self.left(), self.elapsed()
        if left is not None and elapsed + left > 0:
            self._share = max(self._share, min(elapsed / (elapsed + left), MOST_BEFORE_THE_END))
        return self._share

    def view(self) -> View:
        left = 0.0 if self._finished else self.left()
        return View(self.now(), self.share(), self.elapsed(), left, self.db, tuple(self.stages))

    # ---- inside ---------------------------------------------------------------------------------------------------

    def _of(self, name: str) -> Stage | None:
        return next((stage for stage in self.stages if stage.name == name), None)

    def _taken_up(self, name: str, announced: Ahead | None, now: float) -> Stage:
        stage = self._of(name)
        if stage is None:
            stage = Stage(name, now, now)
        else:
            self.stages.remove(stage)
            if not stage.open:  # another time, not more of the same: it takes what it has taken before
                stage.first, stage.expected, stage.numbers = now, stage.spent * (1 + 1 / stage.times), ""
                stage.times += 1
            stage.since = now
        self.stages.append(stage)
        if announced is not None:
            self.ahead.remove(announced)
            unit = self.round_seconds()
            if announced.rounds is not None and unit is not None:
                stage.announced = announced.rounds * unit
                stage.expected = stage.seconds(now) + stage.announced * self._correction(name)
        return stage

    def _close_all(self, now: float) -> None:
        for stage in self.stages:
            self._end(stage, now)

    def _end(self, stage: Stage, now: float) -> None:
        if not stage.open:
            return
        _pause(stage, now)
        stage.total = None if stage.total is None else max(stage.total, stage.done)
        stage.done = stage.total or stage.done
        if stage.announced is not None:
            learnt = self._learnt.setdefault(_kind(stage.name), _Learnt())
            learnt.measured += now - stage.first
            learnt.expected += stage.announced
            stage.announced = None
        if self._measure == stage.name:
            self.end_round()

    def _correction(self, stage: str) -> float:
        learnt, unit = self._learnt.get(_kind(stage)), self.round_seconds()
        if learnt is None or not unit:
            return 1.0
        before = BELIEVED * unit
        return (learnt.measured + before) / (learnt.expected + before)


def tracked(progress: Progress | None) -> Tracker:
    """What a run reports to: the tracker that was given, or one that passes everything on to a function."""
    if isinstance(progress, Tracker):
        return progress
    return Tracker(progress or silent)


def _pause(stage: Stage, now: float) -> None:
    if stage.since is not None:
        stage.spent, stage.since = stage.spent + now - stage.since, None


def _kind(stage: str) -> str:
    """Steps of improvements are of one kind: "improve: gptq"."""
    return stage.partition(":")[0]
