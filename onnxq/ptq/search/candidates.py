"""Models that the search compares: a state with its score, and the acceptance test between two of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from onnxq.calibrate import complete
from onnxq.graph import Graph, collector_paused
from onnxq.ptq.method import Samples, State
from onnxq.ptq.search.acceptance import LOSS, PairedComparison, acceptance, explained, margin_of
from onnxq.ptq.search.evaluator import Evaluator, Score
from onnxq.ptq.search.reasons import StepReason, Why
from onnxq.refine import refine
from onnxq.types import Backend

Recalibrate = Callable[[State, Samples | None], State]
"""Finds all parameters anew for a changed graph, on some samples or, with None, on all."""


@dataclass(frozen=True)
class Candidate:
    """A state with its score on the held-out samples, and how the search came to it.

    reference   the graph after the last step that left the outputs equal, which is what its layers are to compute:
                tensors inside it are scaled as they are in the state, which they are not in the graph before
    least       the score that nothing made of it may fall below: that of calibration alone
    path        numbers of the steps that led to it
    price_db    what its steps have to gain together
    calibrated  its parameters are those of calibration and nothing else
    rounded_by  those of its steps that chose single weights
    scaled_by   those of its steps that scaled channels
    expected_db what its last step gains on most models
    widens      its last step did nothing but to widen formats
    unseen      its ranges are those of the fitted samples alone
    deferred    it was rejected alone, and gains much with what finishes it
    """

    state: State
    score: Score
    reference: Graph
    least: float = -math.inf
    path: tuple[int, ...] = ()
    price_db: float = 0.0
    calibrated: bool = True
    rounded_by: tuple[int, ...] = ()
    scaled_by: tuple[int, ...] = ()
    expected_db: float = 0.0
    widens: bool = False
    unseen: bool = False
    deferred: bool = False


class Scores:
    """Scores of candidates, each found once, and what the acceptance test says of them.

    `further` look at other samples than those held out, to which methods may have been fitted: the first is asked where
    the held-out ones leave doubt, the next where these together do.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        further: Sequence[Evaluator],
        fitted: Samples,
        recalibrate: Recalibrate,
    ) -> None:
        self.evaluator = evaluator
        self.recalibrate = recalibrate
        self._further = tuple(further)
        self._fitted = fitted
        self._on_further: dict[tuple[int, Hashable], Score] = {}
        self._with_unseen_ranges: dict[tuple[int, ...], Candidate] = {}
        self._decisions: dict[Hashable, StepReason] = {}

    def accepts(self, new: Candidate, old: Candidate) -> bool:
        return self.test(new, old).accepts

    def test(self, new: Candidate, old: Candidate) -> StepReason:
        """What `onnxq.ptq.search.acceptance` says of a candidate in the place of another one."""
        pair = _pair(new, old)
        if pair not in self._decisions:
            self._decisions[pair] = self._tested(new, old)
        return self._decisions[pair]

    def _tested(self, new: Candidate, old: Candidate) -> StepReason:
        # Wider formats cannot fit themselves to samples: those held out decide, by more than the price.
        asked = () if new.widens and new.path[:-1] == old.path else range(len(self._further))
        return acceptance(
            PairedComparison.of(new.score, old.score, self.evaluator.samples),
            _margin(new, old),
            above_calibration=new.score.goodness - old.least,
            rounded=new.rounded_by != old.rounded_by,
            surer=new.scaled_by != old.scaled_by or _is_alternative(new, old),
            expected=new.expected_db if new.path[:-1] == old.path else 0.0,
            further=[partial(self._compared, number, new, old) for number in asked],
        )

    def with_unseen_ranges(self, state: State, path: tuple[int, ...], price_db: float = 0.0) -> Candidate:
        """A state with ranges that the held-out samples had no part in."""
        if path not in self._with_unseen_ranges:
            own = self.recalibrate(state, self._fitted)
            score = self.evaluator(own)
            found = Candidate(own, score, state.graph, path=path, price_db=price_db, scaled_by=path, unseen=True)
            self._with_unseen_ranges[path] = found
        return self._with_unseen_ranges[path]

    def clearly_loses(self, new: Candidate, old: Candidate) -> bool:
        """Whether the held-out samples lose more than chance explains."""
        found = PairedComparison.of(new.score, old.score, self.evaluator.samples)
        return found.gain <= -LOSS * found.standard_error

    def decided(self, new: Candidate, old: Candidate, reason: StepReason) -> None:
        """The test of two candidates has been made, with ranges that the held-out samples had no part in."""
        self._decisions[_pair(new, old)] = reason

    def explained(self, reason: StepReason, new: Candidate, old: Candidate) -> Why:
        return explained(reason, new.score, old.score, _margin(new, old))

    def _compared(self, number: int, new: Candidate, old: Candidate) -> PairedComparison:
        evaluator = self._further[number]
        after, before = (self._of_further(number, candidate) for candidate in (new, old))
        return PairedComparison.of(after, before, evaluator.samples)

    def _of_further(self, number: int, candidate: Candidate) -> Score:
        key = number, (candidate.path, candidate.unseen)
        if key not in self._on_further:
            self._on_further[key] = self._further[number](candidate.state)
        return self._on_further[key]


def _is_alternative(new: Candidate, old: Candidate) -> bool:
    """Whether two candidates come from the same one, by methods that choose no single weights."""
    return bool(old.path) and new.path[:-1] == old.path[:-1] and not (new.rounded_by or old.rounded_by)


def _pair(new: Candidate, old: Candidate) -> Hashable:
    return new.path, new.unseen, old.path, old.unseen, old.least


def _margin(new: Candidate, old: Candidate) -> float:
    return margin_of(new.score, new.price_db - old.price_db)


def settled(state: State, backend: Backend) -> State:
    """The state with what follows from its parameters: tied tensors, biases, and the target's own rules."""
    result = state.with_own_parameters()
    with collector_paused():
        complete(result.graph, result.plan, result.qparams)
    return replace(result, qparams=refine(result.graph, result.plan, result.qparams, backend).qparams)
