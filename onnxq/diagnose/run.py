"""The whole diagnosis: what costs most, why, and what fixes it, each step within a number of runs.

No clock decides anything, so that the same model and data give the same diagnosis on any machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Unpack

from onnxq.diagnose.causes import Cause, Costly, OutlierSample
from onnxq.diagnose.diagnosis import Diagnosis
from onnxq.diagnose.evidence import Case, tensors_of
from onnxq.diagnose.evidence.kernels import saturating_kernels, with_kernels_db, written_and_checked
from onnxq.diagnose.evidence.outliers import outliers
from onnxq.diagnose.evidence.preprocessing import Preprocessed, wrong_preprocessing
from onnxq.diagnose.evidence.samples import too_few_samples
from onnxq.diagnose.look import look_at
from onnxq.diagnose.noise import costliest, local_noise, worst_db
from onnxq.diagnose.proof import proven_causes
from onnxq.diagnose.remedies import Patient, proposals
from onnxq.diagnose.remedy import DataChange, Remedy, Setting, Trial
from onnxq.diagnose.trials import PAYS_DB, TrialRunner, combined
from onnxq.errors import ConfigError
from onnxq.mixed_precision.study import Study
from onnxq.mixed_precision.subject import About, Subject, study
from onnxq.progress import Progress, silent
from onnxq.ptq.method import Samples, State
from onnxq.ptq.search.evaluator import Score
from onnxq.ptq.search.sample_split import verification_samples
from onnxq.runtime import Dataset, open_dataset
from onnxq.runtime.preprocessing import read_preprocessing
from onnxq.session.session import Session
from onnxq.temporary import temporary_folder


@dataclass(frozen=True)
class Budget:
    """How much is run.

    samples   to evaluate on
    rankings  models that are evaluated to find the costly quantizers
    looked    quantizers whose causes are looked for
    trials    remedies that are tried
    """

    samples: int
    rankings: int
    looked: int
    trials: int


AUTOMATIC = Budget(samples=8, rankings=64, looked=24, trials=12)
"""At the end of a run: about what a run with effort 1 evaluates."""

BRIEF = Budget(samples=4, rankings=24, looked=8, trials=4)
"""At the end of a run that was to be quick, and has failed."""

THOROUGH = Budget(samples=16, rankings=256, looked=32, trials=32)
"""For who asks."""

GLANCE = 16
"""Samples that tell where the noise may be."""

LEAST_SHARE = 0.01
"""Quantizers with less of the noise than this are not looked into."""

SPREAD = 0.05
"""Where no quantizer has more of the noise than this, all of the costliest are looked into."""

MOST_FEEDS = 64
"""Samples that are computed anew to try other preprocessing."""


@study("onnxq.diagnose")
def diagnose(
    subject: Subject,
    *,
    state: State | None = None,
    budget: Budget = THOROUGH,
    first: Sequence[int] = (),
    **about: Unpack[About],
) -> Diagnosis:
    """Find out why a model loses accuracy; `state` is the quantized model in question, else the calibrated one.

    `first` are numbers of samples that have shown a loss: up to half of the evaluation samples are taken from them.
    Takes a Subject, or a model with the fields of one: `onnxq.diagnose("model.onnx", backend="qnn", data="c.npz")`.
    """
    session = subject.open()
    config, dataset, say = session.settings, session.dataset, session.progress
    assert dataset is not None
    if session.target is not None:  # what the configuration names is then another target
        config = config.model_copy(update={"backend": None})
    session = replace(session.with_settings(config, session.target), progress=silent)
    numbers = _held(dataset, budget.samples, first)
    with temporary_folder() as folder:
        run = _Run(session, numbers, folder, budget, say, state)
        dubious = run.outlier_samples().intersection(numbers)
        if dubious and len(dubious) < len(numbers):
            # What sets the ranges of all others by itself does not decide what is good for them.
            others = tuple(number for number in numbers if number not in dubious)
            run = _Run(session, others, folder, budget, say, state, like=run.study)
        return run.diagnosis()


def _held(dataset: Dataset, most: int, first: Sequence[int]) -> tuple[int, ...]:
    """The evaluation samples: some that have shown a loss, and those that improvements are evaluated on."""
    shown = list(dict.fromkeys(first))[: most // 2]
    others = (number for number in verification_samples(dataset, most).numbers if number not in shown)
    return tuple(sorted([*shown, *islice(others, most - len(shown))]))


class _Run:
    """One diagnosis: the values that its steps share."""

    def __init__(
        self,
        session: Session,
        numbers: tuple[int, ...],
        folder: Path,
        budget: Budget,
        say: Progress,
        state: State | None,
        like: Study | None = None,
    ) -> None:
        """`numbers` are the evaluation samples; `state` is None for the calibrated model."""
        assert session.dataset is not None
        self.held = tuple(Samples(session.dataset, numbers))
        # As a dataset, which is ready: the configuration may say how images are read.
        held = open_dataset(list(self.held), session.dataset.inputs)
        self.study = own = Study(Subject(session, evaluate_on=held, cache=folder), like=like)
        self.calibrated = calibrated = own.calibrated(own.plan())
        if not calibrated.plan.placements:
            raise ConfigError(f"nothing in this model is quantized for {own.prepared.backend.name}: there is no loss")
        self.state = state or calibrated
        self.original, self.dataset, self.config = session.original, own.dataset, own.config
        self.budget, self.say = budget, say
        self.score = self._score(self.state)
        self.worst = worst_db(self.score)
        before = max(self.worst, worst_db(own.score(calibrated)))
        self.target = session.target if isinstance(session.target, str) else self.config.backend
        self.runner = TrialRunner(session, self.target, self.held, before, len(calibrated.plan), folder, own)

    def _score(self, state: State) -> Score:
        # What improvements have changed in the graph is not part of what a study knows scores by.
        return self.study.score(state) if state.graph is self.study.graph else self.study.evaluator(state)

    @cached_property
    def costly(self) -> tuple[Costly, ...]:
        """The quantizers by their noise."""
        observed = [tensor for placement in self.state.plan for tensor in placement.observe]
        glance = look_at(self.state.graph, observed, self.dataset, self.config.engine(), most=GLANCE)
        return costliest(
            self.state,
            self._score,
            self.budget.rankings,
            local_noise(self.state, glance),
            lambda done, total: self.say("noise", done, total),
        )

    @cached_property
    def case(self) -> Case:
        """The costliest quantizers, with what their tensors hold."""
        least = LEAST_SHARE if self.costly and self.costly[0].share >= SPREAD else 0.0
        looked = tuple(row for row in self.costly[: self.budget.looked] if row.share >= least)
        tensors = tensors_of(self.state, looked)
        return Case(self.state, looked, look_at(self.state.graph, tensors, self.dataset, self.config.engine()))

    def outlier_samples(self) -> set[int]:
        """The samples that set ranges by themselves."""
        findings = (evidence.finding for evidence in outliers(self.case))
        return {finding.sample for finding in findings if isinstance(finding, OutlierSample)}

    def diagnosis(self) -> Diagnosis:
        case, looked = self.case, self.case.costly
        causes = proven_causes(case, self._score, lambda done, total: self.say("causes", done, total))
        few = too_few_samples(self.study, self.calibrated, self.dataset, looked)
        causes += [] if few is None else [few]
        trials: list[Trial] = []
        wrong = self._preprocessing()
        if wrong is not None:
            cause, trial = wrong
            causes.insert(0, cause)
            trials.append(trial)
        else:  # on data that the network does not know nothing else can be evaluated
            patient = Patient(case, self.costly, self.config, self.study.prepared.backend, self.target)
            trials += self._tried(patient, causes)
            kernels = self._kernels()
            if kernels is not None:
                causes.append(kernels[0])
                trials.append(kernels[1])
        whole = combined(self.runner, trials, max(4, self.budget.trials // 3))
        return Diagnosis(
            backend=self.study.prepared.backend.name,
            samples=len(self.held),
            results=dict(self.score.sqnr_db),
            before_db=self.runner.before,
            costly=self.costly,
            causes=tuple(causes),
            trials=tuple(trials),
            combined=whole,
            target=self.target,
            config=self.config,
            notes=tuple(self.study.notes),
        )

    def _kernels(self) -> tuple[Cause, Trial] | None:
        """Whether this machine computes the file otherwise than it says, and what other weights make of it."""
        backend = self.study.prepared.backend
        if not backend.runs_in_onnxruntime or self.config.portable:
            return None
        with temporary_folder() as folder:
            report = written_and_checked(self.study.graph, self.state, backend, self.held, folder, portable=False)
            findings = saturating_kernels(report)
            if not findings:
                return None
            other = written_and_checked(self.study.graph, self.state, backend, self.held, folder, portable=True)
        before, after = with_kernels_db(report), with_kernels_db(other)
        remedy = Remedy(settings=(Setting(("portable",), True),))
        trial = Trial(remedy, "saturating_kernel", before, after, after >= before + PAYS_DB)
        return Cause("saturating_kernel", tuple(findings), 0.0, after - before), trial

    def _preprocessing(self) -> tuple[Cause, Trial] | None:
        preprocess = read_preprocessing(self.config.preprocess)
        images = self.dataset.source.preprocessed
        found = wrong_preprocessing(self.original, self.held, preprocess, images=images)
        if found is None:
            return None
        feeds = [found.transformation(feed) for feed in islice(self.dataset, MOST_FEEDS)]
        remedy = _preprocessing_remedy(found, preprocess, images)
        trial = self.runner.tried_on(remedy, "wrong_preprocessing", self.state, self.study, feeds)
        gain = 0.0 if trial.after_db is None else trial.gain_db
        # Data that the network does not know is wrong even where its ranges happen to do: it is offered all the same.
        offered = replace(trial, pays=trial.after_db is not None)
        return Cause("wrong_preprocessing", (found.finding,), 0.0, gain), offered

    def _tried(self, patient: Patient, causes: Sequence[Cause]) -> list[Trial]:
        wanted = proposals(patient, causes, self.budget.trials)
        trials = []
        for number, (remedy, code) in enumerate(wanted.items()):
            self.say("remedies", number, len(wanted))
            if remedy.data is not None and remedy.data.action == "more":
                trials.append(Trial(remedy, code, self.runner.before, None, False))  # nobody has those samples here
            else:
                trials.append(self.runner.tried(remedy, code))
        self.say("remedies", len(wanted), len(wanted))
        return trials


def _preprocessing_remedy(found: Preprocessed, given: Any, images: bool) -> Remedy:
    if images:
        return Remedy(settings=(Setting(("preprocess",), found.transformation.wanted.settings(given)),))
    return Remedy(data=DataChange("compute", formula=found.transformation.formula()))
