"""Carries out a schedule: methods one after the other, each kept where the acceptance test says that it helps."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from onnxq.errors import ConfigError, MachineError, OnnxqError
from onnxq.graph import Graph
from onnxq.graph.write import weight_bytes
from onnxq.progress import OutOfTime, Progress, silent
from onnxq.ptq.method import Chosen, Improved, State, Task, method_name, read_improvement
from onnxq.ptq.search.acceptance import PairedComparison, figures_of, significance
from onnxq.ptq.search.allowance import Allowance
from onnxq.ptq.search.candidates import Candidate, Recalibrate, Scores, settled
from onnxq.ptq.search.costs import stage_of
from onnxq.ptq.search.evaluator import Evaluator, Score
from onnxq.ptq.search.outcome import Level, Outcome, Reached, Step
from onnxq.ptq.search.reasons import NOTHING_TO_CHANGE, StepReason, Why
from onnxq.ptq.search.room import LEAST_ROOM_DB, without_roundings
from onnxq.ptq.search.schedule import DEFERRED_GAIN_DB, ENOUGH_DB, Roundings, Schedule, Stage
from onnxq.runtime.memory import peak_memory

FIRST_LOOK = 0.5
"""Part of their price that wider formats have to gain with the ranges that there were: new ones add little to it."""

MOST_KEPT_BYTES = 2**26
"""Weights of models whose results are kept, for stages that begin anew: there are up to twenty of them."""


@dataclass(frozen=True)
class _Attempt:
    """What the result of a method depends on: steps that led to the base and to what it has to beat."""

    base: tuple[int, ...]
    to_beat: tuple[int, ...]
    least: tuple[float, float]
    name: str
    deferrable: bool

    @classmethod
    def of(cls, base: Candidate, to_beat: Candidate, name: str, *, deferrable: bool) -> _Attempt:
        return cls(base.path, to_beat.path, (base.least, to_beat.least), name, deferrable)


def improve(
    state: State,
    task: Task,
    evaluator: Evaluator,
    schedule: Schedule,
    recalibrate: Recalibrate,
    *,
    further: Sequence[Evaluator] = (),
    progress: Progress | None = None,
    reached: Reached | None = None,
    allowance: Allowance | None = None,
) -> Outcome:
    """Try what there is time for of a schedule, and give back the state that is best where `evaluator` looks.

    `further` look at samples that methods may have been fitted to: what loses there what it gains on the held-out ones
    has only been lucky with those few. Wrong names and arguments are errors before anything is run; what a method
    cannot do for this model is a line of its step.
    """
    methods = {name: read_improvement(name) for name in schedule.names()}
    refuse_without_torch(methods.values())
    started = time.perf_counter()
    allowance = allowance or Allowance()
    allowance.announce(schedule, methods)
    first_score = evaluator(state)
    allowance.first_evaluated(first_score)
    first = Candidate(state, first_score, task.reference, least=first_score.goodness)
    if first_score.in_db and all(value >= ENOUGH_DB for value in first_score.sqnr_db.values()):
        allowance.over()
        return Outcome(state, first_score, first_score, (), len(task.samples), evaluator.samples)
    scores = Scores(evaluator, further, task.samples, recalibrate)
    search = _Search(schedule, methods, task, scores, progress or silent, allowance)
    base, best = search.stages(first, schedule.stages)
    levels = []

    def end_of(effort: int) -> None:
        levels.append(Level(effort, best.score, time.perf_counter() - started, peak_memory()))
        if reached is not None:
            reached(levels[-1], best.state)

    if schedule.preset:
        end_of(1)
    if schedule.further:
        other = search.stages(first, schedule.further)
        if scores.accepts(other[1], best):
            base, best = other
    for effort, roundings in enumerate(schedule.roundings, 2):
        best = search.roundings(base, roundings, best)
        end_of(effort)
    allowance.over()
    allowance.scored(best.score)
    steps = search.told(best)
    samples = len(task.samples), evaluator.samples
    return Outcome(best.state, first_score, best.score, steps, *samples, levels=tuple(levels))


class _Search:
    """The steps of one search; all that changes is the list of those that were tried."""

    def __init__(
        self,
        schedule: Schedule,
        methods: dict[str, Chosen],
        task: Task,
        scores: Scores,
        progress: Progress,
        allowance: Allowance,
    ) -> None:
        self._schedule = schedule
        self._methods = methods
        self._task = task
        self._scores = scores
        self._progress = progress
        self._allowance = allowance
        self._steps: list[Step] = []
        self._hopeless: str | None = None
        self._kept_attempts: dict[_Attempt, tuple[Candidate | None, str | None]] = {}

    def stages(self, base: Candidate, stages: Sequence[Stage]) -> tuple[Candidate, Candidate]:
        """The best that stages one after the other come to, without `finish` and with it."""
        for number, stage in enumerate(stages[:-1], 1):
            kept, rejected = self._alternatives(base, stage)
            deferred = next((candidate for candidate in rejected if candidate.deferred), None)
            if deferred is not None:
                without = self.stages(kept, stages[number:])
                lower = replace(deferred, least=min(base.least, deferred.score.goodness))
                with_it = self.stages(lower, stages[number:])
                if not self._scores.accepts(with_it[1], without[1]):
                    return without
                return replace(with_it[0], least=base.least), replace(with_it[1], least=base.least)
            base = kept
        return self._last_stage(base, stages[-1] if stages else Stage(()))

    def _last_stage(self, base: Candidate, stage: Stage) -> tuple[Candidate, Candidate]:
        """The best method of a stage, without `finish` and with it; rejected ones may be better when finished."""
        kept, rejected = self._alternatives(base, stage)
        best = self._finished(kept)
        for candidate in rejected if self._schedule.finish else ():
            finished = self._finished(candidate)
            if self._scores.accepts(finished, best):
                kept, best = candidate, finished
        return kept, best

    def _alternatives(self, base: Candidate, stage: Stage) -> tuple[Candidate, list[Candidate]]:
        """The best of several methods, or the base if none is better than it; and the results that were rejected."""
        best, rejected, skipped = base, [], set[str]()
        for number, name in enumerate(stage.methods, 1):
            if name in skipped:
                continue
            tried = self.attempt(base, name, best, deferrable=stage.deferrable)
            if tried is None:
                if self._hopeless == method_name(name):
                    same = [other for other in stage.methods[number:] if method_name(other) == self._hopeless]
                    self._allowance.not_needed(same, self._methods)
                    skipped |= set(same)
                continue
            if not tried.deferred and self._scores.accepts(tried, best):
                best = tried
                self._allowance.scored(best.score)
                if stage.one_is_enough:
                    self._allowance.not_needed(stage.methods[number:], self._methods)
                    break
            else:
                rejected.append(tried)
        return best, rejected

    def _finished(self, base: Candidate) -> Candidate:
        """The candidate with the methods of `finish` behind it, each where it helps."""
        for name in self._schedule.finish:
            base, _ = self._alternatives(base, Stage((name,)))
        return base

    def roundings(self, base: Candidate, roundings: Roundings, best: Candidate) -> Candidate:
        """The best so far, or a rounding that is better: of the base, or of the best rounding."""
        limit: float | None = None
        for name in roundings.methods:
            if method_name(name) in roundings.slow and name not in self._schedule.named:
                limit = self._without_roundings(base, best) if limit is None else limit
                if self._leaves_out(name, limit - best.score.goodness):
                    continue
            goes_on = method_name(name) in roundings.behind and best.rounded_by
            best = self._rounded(best if goes_on else base, name, best)
        return best

    def _without_roundings(self, base: Candidate, best: Candidate) -> float:
        """How good a model without roundings is, in dB; no limit for other metrics.

        Biases of the best may make up for roundings that are gone then; those of the base do not.
        """
        if not best.score.in_db:
            return math.inf
        return max(self._scores.evaluator(without_roundings(one.state)).goodness for one in (base, best))

    def _leaves_out(self, name: str, room: float) -> bool:
        """Whether a method has no room: that is a step, and nothing that would follow it is tried either."""
        if room >= LEAST_ROOM_DB:
            return False
        self._allowance.not_needed([name, *self._schedule.finish], self._methods)
        self._steps.append(Step.of(self._methods[name], _no_room(room)))
        return True

    def _rounded(self, base: Candidate, name: str, best: Candidate) -> Candidate:
        """The best so far or a rounding that is better."""
        tried = self.attempt(base, name, best)
        if tried is None:
            return best
        # What finishes a rounding may cost it on the held-out samples what all together gain.
        finished = self._finished(tried)
        return next((one for one in (finished, tried) if self._scores.accepts(one, best)), best)

    def attempt(self, base: Candidate, name: str, to_beat: Candidate, *, deferrable: bool = False) -> Candidate | None:
        """What one method makes of the base; None where that is nothing to go on with. Notes the step.

        Stages that begin anew come to what was tried before: it is known then, and no step.
        """
        attempt = _Attempt.of(base, to_beat, name, deferrable=deferrable)
        if attempt in self._kept_attempts:
            self._allowance.not_needed([name], self._methods)
            result, self._hopeless = self._kept_attempts[attempt]
            return result
        result = self._tried(base, name, to_beat, deferrable=deferrable)
        decided = self._steps[-1].why.reason is not StepReason.TIME_LIMIT
        if self._schedule.further and decided and weight_bytes(base.state.graph.gs) <= MOST_KEPT_BYTES:
            self._kept_attempts[attempt] = result, self._hopeless
            if self._steps[-1].why.reason.accepts:  # nothing is deferred then
                self._kept_attempts[replace(attempt, deferrable=not deferrable)] = result, self._hopeless
        return result

    def _tried(self, base: Candidate, name: str, to_beat: Candidate, *, deferrable: bool) -> Candidate | None:
        chosen, number = self._methods[name], len(self._steps) + 1
        self._hopeless = None
        seen = len(self._task.samples) + self._scores.evaluator.samples
        unasked = self._schedule.preset and name not in self._schedule.named
        if unasked and seen < chosen.method.least_samples:
            self._allowance.not_needed([name], self._methods)
            self._steps.append(Step.of(chosen, _too_few(chosen, seen)))
            return None
        no_time = self._allowance.begin(name, chosen, number)
        if no_time is not None:
            self._steps.append(Step.of(chosen, no_time))
            return None
        if chosen.method.needs_torch and self._task.folder is not None:
            self._task.folder.mkdir(parents=True, exist_ok=True)
        self._progress(stage_of(chosen), 0, None)
        self._scores.evaluator.forget()
        started = time.perf_counter()
        found: Improved | None = None
        result, before, after = None, to_beat.score, None
        try:
            found = self._run(chosen, base.state, base.reference, chosen.method.name, base.score)
            self._hopeless = chosen.method.name if found.hopeless else None
            if not found.changed:
                why = NOTHING_TO_CHANGE
            else:
                why, result, before, after = self._evaluated(chosen, base, found, to_beat)
                if (
                    deferrable
                    and not why.reason.accepts
                    and self._deserves_deferral(chosen, base, found, after.goodness - before.goodness)
                ):
                    result = replace(result or self._candidate(base, found, chosen), deferred=True)
        except (ConfigError, MachineError):
            raise
        except OutOfTime:
            why, found, result, after = self._allowance.broken_off(chosen, number), None, None, None
        except OnnxqError as error:  # what one method cannot do must not cost the others
            why = Why(StepReason.NOT_POSSIBLE, str(error))
        self._allowance.end(chosen, whole=found is not None and bool(found.changed))
        self._scores.evaluator.forget()
        seconds, accepted = time.perf_counter() - started, why.reason.accepts
        self._steps.append(Step.of(chosen, why, found, seconds, applied=accepted, before=before, after=after))
        return result

    def _evaluated(
        self, chosen: Chosen, base: Candidate, found: Improved, to_beat: Candidate
    ) -> tuple[Why, Candidate | None, Score, Score]:
        """What becomes of a change: why it is kept or not, the candidate, and the scores before and after.

        Where all ranges follow from calibration, they are first found without the held-out samples, as any later sample
        has no part in them. A method that brings channels to the largest values that were ever seen, and cuts off all
        others, has to be accepted there; ranges that leave out the largest values must not clearly lose.
        """
        self._allowance.check()
        if found.widens and _has_parameters(found.state):
            after = self._scores.evaluator(found.state)
            if after.goodness - to_beat.score.goodness < FIRST_LOOK * found.price_db:
                why = Why(StepReason.BELOW_PRICE, f"{figures_of(after, to_beat.score)}, before a new calibration")
                return why, None, to_beat.score, after
        follows = (found.recalibrate or found.follows_plan) and not found.widens
        if follows and base.calibrated and to_beat.calibrated:
            old = self._scores.with_unseen_ranges(to_beat.state, to_beat.path, to_beat.price_db)
            self._allowance.check()
            path, price_db = (*base.path, len(self._steps)), base.price_db + found.price_db
            new = self._scores.with_unseen_ranges(found.state, path, price_db)
            figures = f"{figures_of(new.score, old.score)}, with ranges that these had no part in"
            accepted = self._scores.accepts(new, old) if found.recalibrate else not self._scores.clearly_loses(new, old)
            if not accepted:
                why = self._scores.explained(StepReason.UNSEEN_RANGES, new, old)
                if why.reason is not StepReason.BELOW_PRICE:
                    why = Why(StepReason.UNSEEN_RANGES, figures)
                return why, None, old.score, new.score
            self._allowance.check()
            if found.recalibrate:
                result = self._candidate(base, found, chosen)
                self._scores.decided(result, to_beat, StepReason.ACCEPTED)
                return Why(StepReason.ACCEPTED, figures), result, old.score, new.score
        result = self._candidate(base, found, chosen)
        reason = self._scores.test(result, to_beat)
        return self._scores.explained(reason, result, to_beat), result, to_beat.score, result.score

    def _candidate(self, base: Candidate, found: Improved, chosen: Chosen) -> Candidate:
        if found.recalibrate:
            state = self._scores.recalibrate(found.state, None)
        else:
            state = settled(found.state, self._task.backend)
        number = len(self._steps)
        return Candidate(
            state,
            self._scores.evaluator(state),
            reference=state.graph if found.recalibrate else base.reference,
            least=base.least,
            path=(*base.path, number),
            price_db=base.price_db + found.price_db,
            scaled_by=(*base.scaled_by, number) if chosen.method.rescales else base.scaled_by,
            expected_db=chosen.method.expected_db,
            widens=found.widens,
            calibrated=base.calibrated and (found.recalibrate or found.follows_plan),
            rounded_by=(*base.rounded_by, number) if chosen.method.rounds else base.rounded_by,
        )

    def _deserves_deferral(self, chosen: Chosen, base: Candidate, found: Improved, alone: float) -> bool:
        """Whether a method that gains nothing `alone` gains much with `finish` behind it, with unseen ranges."""
        if not (self._schedule.finish and found.recalibrate and base.calibrated and base.score.in_db):
            return False
        if alone < -DEFERRED_GAIN_DB:
            return False
        shown = chosen.method.name
        try:
            before = self._score_of_finished(base.state, base.reference, shown)
            after = self._score_of_finished(found.state, found.state.graph, shown)
        except (ConfigError, MachineError):
            raise
        except OnnxqError:  # of what finishes it, which will say so in its own step
            return False
        comparison = PairedComparison.of(after, before, self._scores.evaluator.samples)
        return significance(comparison, DEFERRED_GAIN_DB).accepts

    def _score_of_finished(self, state: State, reference: Graph, shown: str) -> Score:
        """The best score of a state with ranges from the fitted samples alone, as it is or with `finish` behind it."""
        evaluator = self._scores.evaluator
        state = self._scores.recalibrate(state, self._task.samples)
        best = evaluator(state)
        for name in self._schedule.finish:
            evaluator.forget()
            found = self._run(self._methods[name], state, reference, shown)
            if found.changed:
                state = settled(found.state, self._task.backend)
                best = max(best, evaluator(state), key=lambda score: score.goodness)
        return best

    def _run(self, chosen: Chosen, state: State, reference: Graph, shown: str, score: Score | None = None) -> Improved:
        def progress(what: str, done: int, total: int | None) -> None:
            self._allowance.check(done, total)
            self._progress(f"improve: {shown}", done, total)

        noise = None
        if score is not None and score.in_db and self._schedule.preset and str(chosen) not in self._schedule.named:
            noise = 10 ** (-score.value / 10)
        self._task.findings.begin(state, chosen.method.name)
        return chosen.run(state, replace(self._task, reference=reference, progress=progress, noise=noise))

    def told(self, best: Candidate) -> tuple[Step, ...]:
        """All steps, with `applied` for those that led to the best state."""
        return tuple(
            replace(step, applied=number in best.path, why=step.why.in_the_end(applied=number in best.path))
            for number, step in enumerate(self._steps)
        )


def _has_parameters(state: State) -> bool:
    """Whether a state could be run with the parameters that it has, as formats that were taken away need none."""
    held = state.qparams
    return all(item.tensor in held and held[item.tensor].spec == item.spec for item in state.plan)


def _no_room(room: float) -> Why:
    return Why(StepReason.NO_ROOM, f"with float weights the model would be better by {max(room, 0.0):.1f} dB")


def _too_few(chosen: Chosen, seen: int) -> Why:
    detail = (
        f"it finds a number for each channel, which takes {chosen.method.least_samples} samples, and there are {seen}. "
        "Give more, or ask for it by name"
    )
    return Why(StepReason.TOO_FEW_SAMPLES, detail)


def refuse_without_torch(chosen: Iterable[Chosen]) -> None:
    """ConfigError where an improvement needs PyTorch, which is not installed."""
    needing = [item.method.name for item in chosen if item.method.needs_torch]
    if not needing:
        return
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise ConfigError(
            f"{', '.join(needing)} need PyTorch, which is not installed: pip install torch, or choose a lower --effort"
        )
