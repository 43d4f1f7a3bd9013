"""Models that the search compares: a state with its score, and the acceptance test between two of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from onnxq.calibrate import complete
from onnxq.calibrate.gather import Gathered
from onnxq.graph import Graph, collector_paused
from onnxq.ptq.method import Samples, State
from onnxq.ptq.search.acceptance import PairedComparison, acceptance, explained, margin_of
from onnxq.ptq.search.evaluator import Evaluator, Score
from onnxq.ptq.search.reasons import StepReason, Why
from onnxq.refine import refine
from onnxq.types import Backend

Recalibrate = Callable[[State, Samples | None, Gathered | None], State]
"""Finds all parameters anew for a changed graph, on some samples or, with None, on all; from what was seen of it on
these samples, where that is known."""


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
    widens      its last step did nothing but to widen formats
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
    widens: bool = False
    deferred: bool = False


class Scores:
    """Scores of candidates, each found once, and what the acceptance test says of them.

    `fit_evaluator` looks at samples that methods may have been fitted to.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        fit_evaluator: Evaluator | None,
        fitted: Samples,
        recalibrate: Recalibrate,
    ) -> None:
        self.evaluator = evaluator
        self.recalibrate = recalibrate
        self._fit_evaluator = fit_evaluator
        self._fitted = fitted
        self._on_fitted: dict[tuple[int, ...], Score] = {}
        self._with_unseen_ranges: dict[tuple[int, ...], Score] = {}

    def accepts(self, new: Candidate, old: Candidate) -> bool:
        return self.test(new, old).accepts

    def test(self, new: Candidate, old: Candidate) -> StepReason:
        """What `onnxq.ptq.search.acceptance` says of a candidate in the place of another one."""
        held_out = PairedComparison.of(new.score, old.score, self.evaluator.samples)
        # Wider formats cannot fit themselves to samples: those held out decide, by more than the price.
        fit_evaluator = None if new.widens and new.path[:-1] == old.path else self._fit_evaluator

        def pooled(fit_evaluator: Evaluator) -> PairedComparison:
            after, before = (self._of_fitted(fit_evaluator, candidate) for candidate in (new, old))
            return held_out.pooled(PairedComparison.of(after, before, fit_evaluator.samples))

        return acceptance(
            held_out,
            _margin(new, old),
            above_calibration=new.score.goodness >= old.least,
            rounded=new.rounded_by != old.rounded_by,
            pooled=None if fit_evaluator is None else lambda: pooled(fit_evaluator),
        )

    def explained(self, reason: StepReason, new: Candidate, old: Candidate) -> Why:
        return explained(reason, new.score, old.score, _margin(new, old))

    def with_unseen_ranges(self, state: State, path: tuple[int, ...], seen: Gathered | None = None) -> Score:
        """The score with ranges that the held-out samples had no part in; `seen` is what the others have shown."""
        if path not in self._with_unseen_ranges:
            self._with_unseen_ranges[path] = self.evaluator(self.recalibrate(state, self._fitted, seen))
        return self._with_unseen_ranges[path]

    def _of_fitted(self, fit_evaluator: Evaluator, candidate: Candidate) -> Score:
        if candidate.path not in self._on_fitted:
            self._on_fitted[candidate.path] = fit_evaluator(candidate.state)
        return self._on_fitted[candidate.path]


def _margin(new: Candidate, old: Candidate) -> float:
    return margin_of(new.score, new.price_db - old.price_db)


def settled(state: State, backend: Backend) -> State:
    """The state with what follows from its parameters: tied tensors, biases, and the target's own rules."""
    result = state.copy()
    with collector_paused():
        complete(result.graph, result.plan, result.qparams)
    return replace(result, qparams=refine(result.graph, result.plan, result.qparams, backend).qparams)
