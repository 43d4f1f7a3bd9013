"""The noise of a model's outputs on a few samples, for methods that choose by measuring many variants of one state.

A classifier's few numbers say little on a few samples: what decides them is one or two samples in which they are not
sure. There the noise of what they are computed from is measured, the nearest tensors in front of them with numbers
enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property

import numpy as np

from onnxq.graph import Graph
from onnxq.ptq.method import Samples, State
from onnxq.ptq.search.evaluator import HIGHEST_DB, Evaluator
from onnxq.runtime.session import KEEP_PAIRS
from onnxq.runtime.tap import Tap
from onnxq.types import Backend
from onnxq.verify.results import ResultSums

FEW = 3
"""Samples to measure on."""

OF_FEW_NUMBERS = 8
"""The same where outputs have few numbers."""

MANY = 256
"""Numbers of a tensor that say enough; sizes that are free count as one."""


class LossOnFew:
    """Measures states against the float model; nothing is run before the first one."""

    def __init__(
        self, reference: Graph, backend: Backend, samples: Samples, simulated: Callable[[State], Graph]
    ) -> None:
        self._reference, self._backend, self._samples = reference, backend, samples
        self._simulated = simulated
        self._expected: tuple[Graph, list[dict[str, np.ndarray]]] | None = None

    def __call__(self, state: State) -> float:
        """Noise by power, the mean over what is measured; noise of several causes adds up in it, which dB do not.

        Of few numbers it is two standard errors above what was seen.
        """
        found = self._inside(state) if self._in_front else None
        if found is None:
            found = list(self._evaluator(state).sqnr_db.values())
        noise = sum(10 ** (-min(db, HIGHEST_DB) / 10) for db in found) / max(1, len(found))
        seen = MANY if self._in_front else self._fewest
        return noise * (1 + 2 * math.sqrt(2 / (seen * self._evaluator.samples)))

    @cached_property
    def _fewest(self) -> int:
        """Numbers of the smallest output."""
        return min((_numbers(self._reference, name) for name in self._reference.output_names), default=1)

    @cached_property
    def _in_front(self) -> list[str]:
        """Tensors with numbers enough that all outputs are computed from; none where these have enough themselves."""
        return [] if self._fewest >= MANY else tensors_in_front(self._reference)

    @cached_property
    def _evaluator(self) -> Evaluator:
        count = FEW if self._fewest >= MANY else OF_FEW_NUMBERS
        return Evaluator(self._reference, self._backend, self._samples.first(count))

    def _inside(self, state: State) -> list[float] | None:
        """SQNR of the tensors in front of the outputs; None where a target computes them in its own way.

        The float model is the state's own: earlier steps may have scaled what is inside of it.
        """
        names, model = self._in_front, self._simulated(state)
        if not all(graph.has_tensor(name) for graph in (state.graph, model) for name in names):
            return None
        feeds = list(self._samples.first(OF_FEW_NUMBERS))
        if self._expected is None or self._expected[0] is not state.graph:
            tap = Tap(state.graph, names, threads=1, config=KEEP_PAIRS)
            self._expected = state.graph, [tap.run(feed) for feed in feeds]
        model.sort()
        tap = Tap(model, names, threads=1, config=KEEP_PAIRS)
        sums = {name: ResultSums() for name in names}
        for number, (feed, expected) in enumerate(zip(feeds, self._expected[1], strict=True)):
            measured = tap.run(feed)
            for name, sum_of in sums.items():
                sum_of.add(number, expected[name], measured[name])
        return [sum_of.total.value for sum_of in sums.values()]


def tensors_in_front(graph: Graph) -> list[str]:
    """The nearest tensors with MANY numbers that the outputs are computed from; without inputs of the model."""
    found: dict[str, None] = {}
    waiting, seen = list(graph.output_names), set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        kind = graph.dtype(name)
        if kind is not None and np.dtype(kind).kind == "f" and _numbers(graph, name) >= MANY:
            found[name] = None
            continue
        maker = graph.producer(name)
        if maker is not None:
            waiting += [tensor.name for tensor in maker.inputs if tensor.name and not graph.is_constant(tensor)]
    inputs = set(graph.input_names)
    return [name for name in found if name not in inputs]


def _numbers(graph: Graph, name: str) -> int:
    shape = graph.shape(name)
    return math.prod(max(1, size) for size in shape or () if isinstance(size, int))
