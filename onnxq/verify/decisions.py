"""Whether decisions survive quantization: scores of the float and the quantized model, and what each would decide.

arg_max      the class with the highest score, at each position
above_half   of the scores above half of the sample's highest in one of the models, those above it in both (the
             Jaccard index): what a detector would show, at a threshold that fits the sample
binary       single scores above 0.5, or single logits above 0
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onnxq.graph.scored import Scores
from onnxq.verify.report import DecisionKind, Decisions


class DecisionCount:
    """Decisions of one result, counted over samples.

    Logits may be a regression: decisions that are the same in every sample of the float model say nothing about them.
    """

    def __init__(self, scores: Scores) -> None:
        self._scores = scores
        self._kind: DecisionKind | None = None
        self._agreed = 0
        self._compared = 0
        self._decided: set[int] = set()

    @classmethod
    def together(cls, counts: Sequence[DecisionCount | None]) -> DecisionCount | None:
        """The decisions of several parts as one's; None where they are not of one kind."""
        kinds = {None if count is None else (count._scores.kind, count._kind) for count in counts}
        if len(kinds) != 1 or None in kinds:
            return None
        first, *others = [count for count in counts if count is not None]
        whole = cls(first._scores)
        whole._kind = first._kind
        for count in (first, *others):
            whole._agreed += count._agreed
            whole._compared += count._compared
            whole._decided |= count._decided
        return whole

    def add(self, expected: np.ndarray, measured: np.ndarray) -> None:
        """Take in one sample of the float and the quantized model, of one shape."""
        if not expected.size or not np.isfinite(expected.astype(np.float64)).all():
            return
        if math.prod(expected.shape[1:]) == 1:
            limit = 0.5 if self._scores.kind != "logits" else 0.0
            self._add(DecisionKind.BINARY, expected > limit, measured > limit)
        elif self._scores.kind == "independent":
            limit = float(expected.max()) / 2
            shown, found = expected > limit, measured > limit
            self._kind = DecisionKind.ABOVE_HALF
            self._agreed += int(np.count_nonzero(shown & found))
            self._compared += int(np.count_nonzero(shown | found))
        elif (axis := self._scores.axis) is not None and axis < expected.ndim and expected.shape[axis] > 1:
            # The axis is that of the declared shape, which may have another rank than the values.
            self._add(DecisionKind.ARG_MAX, expected.argmax(axis), measured.argmax(axis))

    def _add(self, kind: DecisionKind, expected: np.ndarray, measured: np.ndarray) -> None:
        self._kind = kind
        self._agreed += int(np.count_nonzero(expected == measured))
        self._compared += expected.size
        if len(self._decided) < 2:
            lowest = expected.min()  # np.unique would import numpy.ma
            others = expected[expected != lowest]
            self._decided.update([lowest.item(), *([others.min().item()] if others.size else [])])

    def found(self) -> Decisions | None:
        """What was counted; None where there was nothing to decide."""
        if self._kind is None or not self._compared or (self._scores.kind == "logits" and len(self._decided) < 2):
            return None
        return Decisions(self._kind, self._agreed / self._compared, self._compared)
