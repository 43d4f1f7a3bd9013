"""Remedies tried before they are offered: the model quantized anew in memory, evaluated on the same samples as before.

Statistics and scores of a diagnosis are kept in one folder, so that a remedy that changes no float graph needs no run
of it, and nothing is scored twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from onnxq.diagnose.causes import Code
from onnxq.diagnose.noise import worst_db
from onnxq.diagnose.remedy import Remedy, Trial, apply_to, nearly_best, price, target_with, together
from onnxq.emit import emit
from onnxq.errors import MachineError, OnnxqError, UnsupportedError
from onnxq.mixed_precision.study import Study
from onnxq.mixed_precision.subject import Subject
from onnxq.place.legal import check_plan
from onnxq.ptq.method import Samples, State
from onnxq.ptq.search.evaluator import Evaluator
from onnxq.runtime import Dataset, open_dataset
from onnxq.runtime.feeds import Feed
from onnxq.session.session import Session
from onnxq.temporary import temporary_folder

PAYS_DB = 1.0
"""What a remedy has to gain: less may be chance on few samples."""

LEAST_LEFT = 0.5
"""A model with fewer of its quantizers is hardly a quantized one."""

ENOUGH_DB = 20.0
"""A worst result above this needs no further remedies that cost something on the chip."""


@dataclass(frozen=True)
class TrialRunner:
    """The model as it was given, with everything that a trial repeats.

    session   model, data, passes; its settings and target are those that a remedy changes
    target    the name of the target, with its options; None where it has none that could be looked up
    held      the evaluation samples
    before    the worst result without any remedy
    quantizers  how many there are without any remedy
    cache     folder of what trials have in common; None keeps nothing
    first     a study of the same model and data, which are not read anew for every remedy; None where there is none
    """

    session: Session
    target: str | None
    held: tuple[Feed, ...]
    before: float
    quantizers: int
    cache: Path | None = None
    first: Study | None = None

    def tried(self, remedy: Remedy, cause: Code) -> Trial:
        """A remedy with what it comes to; one that the target refuses has the reason."""
        try:
            after = self._measured(remedy)
        except MachineError:
            raise
        except OnnxqError as error:
            return Trial(remedy, cause, self.before, None, False, str(error))
        return Trial(remedy, cause, self.before, after, after >= self.before + PAYS_DB)

    def tried_on(self, remedy: Remedy, cause: Code, state: State, study: Study, feeds: Sequence[Feed]) -> Trial:
        """A remedy for the data: calibrated on other samples, and evaluated on others, as the model without it is."""
        held = tuple(feeds[number] for number in _held_numbers(len(feeds), len(self.held)))
        before = worst_db(Evaluator(study.graph, study.prepared.backend, held)(state))
        session = replace(self.session, dataset=self._as_dataset(feeds))
        other = replace(self, session=session, held=held, before=before, first=None)
        try:
            after = other._measured(Remedy())
        except MachineError:
            raise
        except OnnxqError as error:
            return Trial(remedy, cause, before, None, False, str(error))
        return Trial(remedy, cause, before, after, after >= before + PAYS_DB)

    def _measured(self, remedy: Remedy) -> float:
        study = self.study(remedy)
        state = study.calibrated(study.plan())
        if len(state.plan) < LEAST_LEFT * self.quantizers:
            raise UnsupportedError(f"only {len(state.plan)} of {self.quantizers} quantizers would be left")
        found = worst_db(study.score(state))
        if found >= self.before + PAYS_DB:  # what cannot be written is no remedy
            check_plan(state.plan, study.prepared.backend)
            with temporary_folder() as folder:
                emit(study.graph, state.plan, state.qparams, study.prepared.backend, folder, self.session.settings.name)
        return found

    def study(self, remedy: Remedy) -> Study:
        """The model made ready with a remedy."""
        target = self.session.target
        if remedy.options and self.target is not None:
            target = target_with(self.target, remedy.options)
        session, first = self.session.with_settings(apply_to(self.session.settings, remedy), target), self.first
        if remedy.data is not None and remedy.data.action == "leave_out":
            session, first = replace(session, dataset=self.without(remedy.data.samples)), None
        return Study(Subject(session, evaluate_on=self._as_dataset(self.held), cache=self.cache), like=first)

    def without(self, left_out: Sequence[int]) -> Dataset:
        """The data but for some samples, read as it is needed."""
        data = self.session.dataset
        assert data is not None
        count = sum(1 for _ in data) if data.length is None else data.length
        rest = tuple(number for number in range(count) if number not in left_out)
        return self._as_dataset(Samples(data, rest))

    def _as_dataset(self, feeds: Iterable[Feed]) -> Dataset:
        """Samples that are ready: a configuration may say how images are read."""
        assert self.session.dataset is not None
        return open_dataset(feeds, self.session.dataset.inputs)


def _held_numbers(count: int, held: int) -> list[int]:
    every = max(1, count // max(held, 1))
    return list(range(every - 1, count, every))[:held]


def combined(runner: TrialRunner, trials: Iterable[Trial], runs: int) -> Trial | None:
    """The remedies that are worth to be applied together, and how that goes.

    The best one is gone out from, or the cheapest of those that are nearly as good; others are added while the worst
    result is still low.
    """
    # What kernels do on this machine is no part of what the others are evaluated on.
    paying = [trial for trial in trials if trial.pays and not trial.remedy.by_hand and trial.cause != KERNEL]
    if not paying:
        return None
    best = min(nearly_best(paying), key=lambda trial: (price(trial.remedy), -trial.gain_db))
    for trial in sorted(paying, key=lambda trial: (-trial.gain_db, price(trial.remedy))):
        if runs <= 0 or (best.after_db or 0.0) >= ENOUGH_DB:
            break
        both = together([best.remedy, trial.remedy])
        if both in (best.remedy, trial.remedy):
            continue
        runs -= 1
        found = runner.tried(both, best.cause)
        if found.gain_db >= best.gain_db + PAYS_DB:
            best = found
    return best


KERNEL: Code = "saturating_kernel"
