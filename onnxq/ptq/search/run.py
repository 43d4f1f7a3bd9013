"""Improvements one after the other, each judged on held samples and dropped if it does not help."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from onnxq.calibrate import complete
from onnxq.errors import ConfigError, MachineError, OnnxqError
from onnxq.graph import Graph, collector_paused
from onnxq.progress import Progress
from onnxq.ptq.method import Chosen, Improved, Samples, State, Task, read_improvement
from onnxq.ptq.search.evaluator import Evaluator, Score
from onnxq.ptq.search.evidence import Evidence
from onnxq.ptq.search.outcome import Level, Outcome, Reached, Step
from onnxq.ptq.search.schedule import Effort
from onnxq.refine import refine
from onnxq.runtime.memory import peak_memory
from onnxq.types import Backend

MARGIN_DB = 0.05
"""An improvement smaller than this is noise of the few samples that judge it."""

ENOUGH_DB = 55.0
"""Where every output is this near to the float model, there is nothing to gain."""

NEAR_DB = 1.0
"""What a short trial may be behind the best by, for the whole of it to be tried: more steps rarely gain more."""

WORTH_DB = 2.0
"""What a step that is worse alone has to gain with what finishes it, and may lose without, to be worth a second way to
the end: in four cases of four (three networks, W4A4 and W8A8) smaller gains were none on other samples."""

USELESS = "did not help"

Recalibrate = Callable[[State, Samples | None], State]
"""Finds all parameters anew for a changed graph, on some samples or, with None, on all."""


@dataclass(frozen=True)
class _Candidate:
    """A state with its score, the float graph that its layers are to compute, the numbers of the steps that led to it.

    `reference` is the graph after the last step that left the outputs equal: tensors inside it are scaled as they are
    in the state, which they are not in the graph before. `price_db` is what its steps have to gain together. The
    parameters of a `fresh` one are those of calibration and nothing else. `rounded_by` are those of its steps that
    chose single weights. One that `promises` is not better, but was much better with what finishes it.
    """

    state: State
    score: Score
    reference: Graph
    path: tuple[int, ...] = ()
    price_db: float = 0.0
    fresh: bool = True
    rounded_by: tuple[int, ...] = ()
    deferred: bool = False


def improve(
    state: State,
    task: Task,
    evaluator: Evaluator,
    effort: Effort,
    recalibrate: Recalibrate,
    *,
    fit_evaluator: Evaluator | None = None,
    progress: Progress | None = None,
    reached: Reached | None = None,
) -> Outcome:
    """Try everything of an effort, and give back the state that is best where `evaluator` looks.

    `fit_evaluator` judges on samples that steps may have been fitted to: a step that loses there what it gains on the
    held ones has only been lucky with those few. A step after which all ranges are found anew is first judged with
    ranges that the held samples had no part in, as any later sample has none: one that brings channels to the largest
    values that were ever seen cuts off all others. Wrong names and arguments are errors before anything is run; what a
    step cannot do for this model is a line of it.
    """
    chosen = {name: read_improvement(name) for name in effort.names()}
    run = _Run(task, evaluator, fit_evaluator, recalibrate, progress, chosen, reached)
    run.preset = effort.preset
    run.finish = {name: effort.finish for name in effort.unfinished if effort.finish}
    first = _Candidate(state, evaluator(state), task.reference)
    run.floor = first.score.goodness
    if run.is_enough(first.score):
        return Outcome(state, first.score, first.score, (), len(task.samples), evaluator.samples)
    base, best = run.prepared(first, effort.prepare, effort.finish)
    if effort.preset:
        run.level(1, best)
    for number, names in enumerate(effort.rounding, 2):
        came_to: dict[str, float] = {}
        for name in names:
            best, came_to[name] = run.rounded(base, name, best, effort.finish)
        short = max((name for name in names if name in effort.longer), key=came_to.__getitem__, default=None)
        if short is not None and came_to[short] > best.score.goodness - (NEAR_DB if _in_db(best.score) else 0.0):
            best, _ = run.rounded(base, effort.longer[short], best, effort.finish)
        run.level(number, best)
    return Outcome(
        best.state,
        first.score,
        best.score,
        run.told(best),
        len(task.samples),
        evaluator.samples,
        levels=tuple(run.levels),
    )


class _Run:
    """What is common to the steps of one run."""

    def __init__(
        self,
        task: Task,
        evaluator: Evaluator,
        fit_evaluator: Evaluator | None,
        recalibrate: Recalibrate,
        progress: Progress | None,
        chosen: dict[str, Chosen],
        reached: Reached | None,
    ) -> None:
        self.task = task
        self.evaluator = evaluator
        self.fit_evaluator = fit_evaluator
        self._supported: dict[tuple[int, ...], Score] = {}
        self._rehearsed: dict[tuple[int, ...], Score] = {}
        self.recalibrate = recalibrate
        self.progress = progress
        self.chosen = chosen
        self.steps: list[Step] = []
        self.levels: list[Level] = []
        self.floor = -math.inf
        self.preset = False
        self.seen = len(task.samples) + evaluator.samples
        self.finish: dict[str, tuple[str, ...]] = {}
        self._reached = reached
        self._started = time.perf_counter()
        refuse_without_torch(chosen.values())

    def is_enough(self, score: Score) -> bool:
        return score.metric == "sqnr_db" and all(value >= ENOUGH_DB for value in score.sqnr_db.values())

    def is_better(self, new: _Candidate, old: _Candidate) -> bool:
        """By more than chance, on the held samples and those of `fit_evaluator` together.

        Where single weights were chosen by samples of `fit_evaluator`, the held ones alone must say so too. Elsewhere
        they may differ by what chance explains, but no model becomes worse on them than calibration alone has made it.
        """
        held = Evidence.of(new.score, old.score, self.evaluator.samples)
        margin = _margin(new, old)
        alone = self.fit_evaluator is None or new.rounded_by != old.rounded_by
        if held.gain <= (margin if alone else -held.stderr) or new.score.goodness < self.floor:
            return False
        if self.fit_evaluator is None:
            return True
        after, before = self._support(self.fit_evaluator, new), self._support(self.fit_evaluator, old)
        both = held.with_more(Evidence.of(after, before, self.fit_evaluator.samples))
        return both.gain > margin and both.is_enough

    def _support(self, fit_evaluator: Evaluator, candidate: _Candidate) -> Score:
        """What the fit_evaluator says of a candidate, each asked for once."""
        if candidate.path not in self._supported:
            self._supported[candidate.path] = fit_evaluator(candidate.state)
        return self._supported[candidate.path]

    def _rehearsal(self, state: State, path: tuple[int, ...]) -> Score:
        """The score with ranges from the fitted samples alone, each found once."""
        if path not in self._rehearsed:
            self._rehearsed[path] = self.evaluator(self.recalibrate(state, self.task.samples))
        return self._rehearsed[path]

    def prepared(
        self, base: _Candidate, stages: Sequence[Sequence[str]], finish: Sequence[str]
    ) -> tuple[_Candidate, _Candidate]:
        """The best that stages one after the other come to, without `finish` and with it.

        Where a step promises what it does not keep alone, all that follows is done with it and without it.
        """
        for number, stage in enumerate(stages[:-1], 1):
            kept, others = self._tournament(base, stage)
            promising = next((other for other in others if other.deferred), None)
            if promising is not None:
                without = self.prepared(kept, stages[number:], finish)
                floor, self.floor = self.floor, min(self.floor, promising.score.goodness)
                with_it = self.prepared(promising, stages[number:], finish)
                self.floor = floor
                return with_it if self.is_better(with_it[1], without[1]) else without
            base = kept
        return self.best_finished(base, stages[-1] if stages else (), finish)

    def best_of(self, base: _Candidate, names: Sequence[str]) -> _Candidate:
        """The best of several alternatives, or the base if none is better than it."""
        return self._tournament(base, names)[0]

    def best_finished(
        self, base: _Candidate, names: Sequence[str], finish: Sequence[str]
    ) -> tuple[_Candidate, _Candidate]:
        """The best of the alternatives in front of `finish`, without it and with it.

        One that is worse by itself may be the best one when it is finished: scales that cut weights off shift means,
        which a correction of biases puts right.
        """
        kept, others = self._tournament(base, names)
        best = self.chain(kept, finish)
        for other in others if finish else ():
            finished = self.chain(other, finish)
            if self.is_better(finished, best):
                kept, best = other, finished
        return kept, best

    def _tournament(self, base: _Candidate, names: Sequence[str]) -> tuple[_Candidate, list[_Candidate]]:
        """The best of several alternatives, or the base if none is better than it; and those that were not."""
        best, others = base, []
        for name in names:
            tried = self.attempt(base, name, best)
            if tried is not None and not tried.deferred and self.is_better(tried, best):
                best = tried
            elif tried is not None:
                others.append(tried)
        return best, others

    def chain(self, base: _Candidate, names: Sequence[str]) -> _Candidate:
        """Steps one after the other, each kept if it helps."""
        for name in names:
            base = self.best_of(base, [name])
        return base

    def rounded(self, base: _Candidate, name: str, best: _Candidate, finish: Sequence[str]) -> tuple[_Candidate, float]:
        """The best so far or a rounding that is better; and how good that rounding is on the held samples."""
        tried = self.attempt(base, name, best)
        if tried is None:
            return best, -math.inf
        # What finishes a rounding may cost it on the held samples what all together gain.
        finished = self.chain(tried, finish)
        came_to = max(tried.score.goodness, finished.score.goodness)
        return next((one for one in (finished, tried) if self.is_better(one, best)), best), came_to

    def attempt(self, base: _Candidate, name: str, to_beat: _Candidate) -> _Candidate | None:
        """The result of one improvement with its score; None where it changed nothing or could not be done."""
        chosen = self.chosen[name]
        if self.preset and self.seen < chosen.method.least_samples:
            self._note_untried(chosen)
            return None
        self.evaluator.forget()
        if chosen.method.needs_torch and self.task.folder is not None:
            self.task.folder.mkdir(parents=True, exist_ok=True)
        if self.progress is not None:
            self.progress(f"improve: {chosen.method.name}", 0, None)
        started = time.perf_counter()
        declined: tuple[str, ...] = ()
        found: Improved | None = None
        score: Score | None = None
        to_tell = to_beat.score
        result: _Candidate | None = None
        helps = False  # as far as known when it was tried
        try:
            shown = self._shown(chosen.method.name)
            found = chosen.run(base.state, replace(self.task, reference=base.reference, progress=shown))
            declined = found.declined
            if not found.changed:
                why = "there was nothing to change"
            elif (unseen := self._fails_unseen(base, found, to_beat)) is not None:
                to_tell, score = unseen
                why = f"{USELESS}: {_figures(score, to_tell)}, with ranges that these had no part in"
            else:
                result = self._candidate(base, found, chosen)
                score = result.score
                helps = self.is_better(result, to_beat)
                why = _verdict(helps, result, to_beat)
            if (
                score is not None
                and not helps
                and self._deserves_deferral(name, base, found, score.goodness - to_tell.goodness)
            ):
                result = replace(result or self._candidate(base, found, chosen), deferred=True)
        except OnnxqError as error:  # what one method cannot do must not cost the others
            if isinstance(error, ConfigError | MachineError):
                raise
            why = f"not possible here: {error}"
        self.evaluator.forget()
        self.steps.append(
            Step(
                name=str(chosen),
                paper=chosen.method.paper,
                applied=helps,
                why=why,
                before=to_tell,
                after=score,
                changed=found.changed if found is not None else (),
                declined=declined,
                seconds=time.perf_counter() - started,
                peak_memory=peak_memory(),
                details=dict(found.details) if found is not None else {},
            )
        )
        return result

    def _note_untried(self, chosen: Chosen) -> None:
        """Say once that a step of an effort takes more samples than there are."""
        why = (
            f"not tried: it finds a number for each channel, which takes {chosen.method.least_samples} samples, and "
            f"there are {self.seen}. Give more, or ask for it by name"
        )
        self.steps.append(Step(str(chosen), chosen.method.paper, False, why, None, None, (), (), 0.0, peak_memory()))

    def _candidate(self, base: _Candidate, found: Improved, chosen: Chosen) -> _Candidate:
        new = self.recalibrate(found.state, None) if found.recalibrate else settled(found.state, self.task.backend)
        number = len(self.steps)
        return _Candidate(
            new,
            self.evaluator(new),
            reference=new.graph if found.recalibrate else base.reference,
            path=(*base.path, number),
            price_db=base.price_db + found.price_db,
            fresh=base.fresh and (found.recalibrate or found.follows_plan),
            rounded_by=(*base.rounded_by, number) if chosen.method.rounds else base.rounded_by,
        )

    def _deserves_deferral(self, name: str, base: _Candidate, found: Improved, alone: float) -> bool:
        """Whether a step that gains nothing `alone` is much better in front of what finishes it.

        Judged with ranges that the held samples had no part in.
        """
        finish = self.finish.get(name, ())
        if not (finish and found.recalibrate and base.fresh and _in_db(base.score)) or alone < -WORTH_DB:
            return False
        try:
            before = self._finished(base.state, base.reference, finish, name)
            after = self._finished(found.state, found.state.graph, finish, name)
        except OnnxqError as error:  # of what finishes it, which will say so in its own step
            if isinstance(error, ConfigError | MachineError):
                raise
            return False
        evidence = Evidence.of(after, before, self.evaluator.samples)
        return evidence.gain > WORTH_DB and evidence.is_enough

    def _finished(self, state: State, reference: Graph, finish: Sequence[str], shown: str) -> Score:
        """The best score of a state with ranges from the fitted samples alone, as it is or with steps behind it."""
        state = self.recalibrate(state, self.task.samples)
        best = self.evaluator(state)
        for name in finish:
            self.evaluator.forget()
            progress = self._shown(self.chosen[shown].method.name)
            found = self.chosen[name].run(state, replace(self.task, reference=reference, progress=progress))
            if found.changed:
                state = settled(found.state, self.task.backend)
                best = max(best, self.evaluator(state), key=lambda score: score.goodness)
        return best

    def _fails_unseen(self, base: _Candidate, found: Improved, to_beat: _Candidate) -> tuple[Score, Score] | None:
        """The scores before and after ranges have changed, where values that they were not found by speak against it.

        A candidate with other parameters than those of calibration cannot be compared in this way. What nodes must be
        worth is not asked for here, but with the ranges that will be written.
        """
        if not (found.recalibrate or found.follows_plan) or not (base.fresh and to_beat.fresh):
            return None
        before = self._rehearsal(to_beat.state, to_beat.path)
        after = self._rehearsal(found.state, (*base.path, len(self.steps)))
        gain = after.goodness - before.goodness
        return None if gain > (MARGIN_DB if _in_db(after) else 0.0) else (before, after)

    def level(self, effort: int, best: _Candidate) -> None:
        """Note what an effort has come to, now that all of it is done."""
        level = Level(effort, best.score, time.perf_counter() - self._started, peak_memory())
        self.levels.append(level)
        if self._reached is not None:
            self._reached(level, best.state)

    def told(self, best: _Candidate) -> tuple[Step, ...]:
        """All steps, with `applied` for those that led to the best state."""
        told = []
        for number, step in enumerate(self.steps):
            applied = number in best.path
            why = step.why
            if step.applied and not applied:
                why = f"{why}; something else was better still"
            elif applied and not step.applied:
                why = why.replace(USELESS, "helps with what follows")
            told.append(replace(step, applied=applied, why=why))
        return tuple(told)

    def _shown(self, name: str) -> Progress:
        """Progress of a step, under its name."""
        report = self.progress

        def show(what: str, done: int, total: int | None) -> None:
            if report is not None:
                report(f"improve: {name}", done, total)

        return show


def settled(state: State, backend: Backend) -> State:
    """The state with what follows from its parameters: tied tensors, biases, and the target's own rules."""
    result = state.copy()
    with collector_paused():
        complete(result.graph, result.plan, result.qparams)
    return replace(result, qparams=refine(result.graph, result.plan, result.qparams, backend).qparams)


def _margin(new: _Candidate, old: _Candidate) -> float:
    """What a candidate has to be better by."""
    return max(MARGIN_DB, new.price_db - old.price_db) if _in_db(new.score) else 0.0


def _in_db(score: Score) -> bool:
    return score.metric == "sqnr_db"


def _figures(new: Score, old: Score) -> str:
    unit = " dB" if _in_db(new) else ""
    return f"{new.metric} {old.value:.4g}{unit} -> {new.value:.4g}{unit} on the held samples"


def _verdict(better: bool, new: _Candidate, old: _Candidate) -> str:
    figures = _figures(new.score, old.score)
    gain, margin = new.score.goodness - old.score.goodness, _margin(new, old)
    if better:
        return figures if gain > 0 else f"{figures}, which is chance: with the other samples it helps"
    if gain > margin:
        return f"{USELESS}: {figures}, which chance can explain or the samples that it was fitted to do not confirm"
    if gain > MARGIN_DB:
        return f"{USELESS} enough: {figures}, less than the {margin:g} dB that its nodes must be worth"
    return f"{USELESS}: {figures}"


def refuse_without_torch(chosen: Iterable[Chosen]) -> None:
    """ConfigError where an improvement needs PyTorch, which is not installed."""
    needing = [item.method.name for item in chosen if item.method.needs_torch]
    if not needing:
        return
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise ConfigError(
            f"{', '.join(needing)} need PyTorch, which is not installed: pip install 'onnxq[torch]', or choose a "
            "lower --effort"
        )
