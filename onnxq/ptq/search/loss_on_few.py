"""The noise of a model's outputs on a few samples, for methods that choose by measuring many variants of one state."""

from __future__ import annotations

import math
from functools import cached_property

from onnxq.graph import Graph
from onnxq.ptq.method import Samples, State
from onnxq.ptq.search.evaluator import HIGHEST_DB, Evaluator
from onnxq.types import Backend

FEW, OF_FEW_NUMBERS = 3, 8
"""Samples to measure on: more where the outputs of one have few numbers."""

MANY = 64
"""Numbers of an output that say enough; sizes that are free count as one."""


class LossOnFew:
    """Measures states against the float model; nothing is run before the first one."""

    def __init__(self, reference: Graph, backend: Backend, samples: Samples) -> None:
        self._reference, self._backend, self._samples = reference, backend, samples

    def __call__(self, state: State) -> float:
        """Noise by power, the mean over all outputs; noise of several causes adds up in it, which dB do not.

        It is what the noise is at most, two standard errors above that of the numbers that were seen.
        """
        found = self._evaluator(state).sqnr_db.values()
        noise = sum(10 ** (-min(db, HIGHEST_DB) / 10) for db in found) / max(1, len(found))
        return noise * (1 + 2 * math.sqrt(2 / (self._numbers * self._evaluator.samples)))

    @cached_property
    def _numbers(self) -> int:
        """Numbers of the smallest output."""
        return min((_numbers(self._reference.shape(name)) for name in self._reference.output_names), default=1)

    @cached_property
    def _evaluator(self) -> Evaluator:
        count = FEW if self._numbers >= MANY else OF_FEW_NUMBERS
        return Evaluator(self._reference, self._backend, self._samples.first(count))


def _numbers(shape: tuple[int | str | None, ...] | None) -> int:
    count = 1
    for size in shape or ():
        count *= max(1, size) if isinstance(size, int) else 1
    return count
