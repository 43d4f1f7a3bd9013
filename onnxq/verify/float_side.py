"""The float model of a comparison: run once, however many files are held against it.

Where the kernels of a processor saturate, a model is written in several ways, and each file is compared on the same
samples. What the float model makes of them, and what follows from its graph, is the same for all.

What the model means is what it computes node by node, without onnxruntime's optimizer, whose fusions are not all right.
That takes up to three times as long. So a large model runs both ways on the first sample, and where every output and
every part of one is the same but for the order of sums, the optimizer's kernels run the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxq.graph import Graph, bodies
from onnxq.graph.joined import Join, joins, with_shapes
from onnxq.graph.write import weight_bytes
from onnxq.numerics import SqnrAccumulator
from onnxq.runtime.feeds import Feed
from onnxq.runtime.sections import MANY_NODES, SectionedSession, unoptimized_session_of
from onnxq.runtime.session import ModelInMemory, float_model, look_session, run_session
from onnxq.verify.results import is_float

if TYPE_CHECKING:
    import onnxruntime as ort

EQUAL_DB = 100.0
"""SQNR from which two runs of a float model differ by the order of their sums alone (102 to 139 dB on real models)."""

OPTIMIZING_SECONDS, OPTIMIZING_PER_BYTE, SAVED_PER_BYTE = 0.02, 1e-9, 1e-10
"""What an optimized session costs, for a model and for each byte of its weights, and what it saves in a run for each
byte of its tensors (measured on CNNs)."""

MOST_TWICE = 2**28
"""Bytes of weights that may be held once more in the layout of the optimizer's kernels."""


class FloatSide:
    """`graph` may not change while files are compared with it, on samples that are the same each time.

    `keep` are the bytes of outputs that may be kept for the next file; those of further samples are computed again.
    """

    def __init__(self, graph: Graph, *, keep: int = 0) -> None:
        self.graph = graph
        self._keep = keep
        self._sessions: dict[tuple[tuple[str, ...], int | None], ort.InferenceSession | SectionedSession] = {}
        self._kept: dict[tuple[tuple[str, ...], int], list[Any]] = {}
        self._bytes = 0
        self._model: ModelInMemory | None = None
        self._optimized: dict[int, ort.InferenceSession] = {}
        self._quick: dict[int | None, ort.InferenceSession] = {}
        self._first: list[Any] | None = None

    @cached_property
    def shaped(self) -> Graph:
        """The graph with the shapes that tell the parts of outputs."""
        return with_shapes(self.graph)

    @cached_property
    def joins(self) -> dict[str, list[Join]]:
        return joins(self.shaped)

    def outputs(self, further: Sequence[str], number: int, feed: Feed, where: str, threads: int | None) -> list[Any]:
        """The outputs for a sample, and the tensors `further`; `number` is that of the sample among the compared.

        May be called by several threads, after `prepare`.
        """
        key = (tuple(further), number)
        found = self._kept.get(key)
        if found is None:
            quick = None if further else self._quick.get(threads)
            if quick is not None and number == 0 and self._first is not None:
                found = self._first
            else:
                names = [*self.graph.output_names, *further]
                found = run_session(quick or self._sessions[tuple(further), threads], names, feed, where)
            size = sum(value.nbytes for value in found if isinstance(value, np.ndarray))
            plain = all(isinstance(value, np.ndarray) for value in found)
            if plain and self._bytes + size <= self._keep:
                self._bytes += size
                self._kept[key] = found
        return found

    def prepare(
        self,
        further: Sequence[str],
        threads: int | None,
        *,
        first: Feed | None = None,
        bytes_of_others: int = 0,
        where: str = "",
    ) -> None:
        """Make the session, once for all files: that without the optimizer, and where it pays one with it.

        `first` is the first sample that is going to be compared; the runs of all others compute `bytes_of_others`.
        """
        key = (tuple(further), threads)
        if key in self._sessions:
            return
        with self._serialized(further) as model:
            self._sessions[key] = unoptimized_session_of(model, threads=threads)
        if first is not None and threads is not None and not further and self._optimizing_pays(bytes_of_others):
            self._first = run_session(self._sessions[key], self.graph.output_names, first, where)
            optimized = self.as_users_run(threads=threads)
            if self._equal(self._first, run_session(optimized, self.graph.output_names, first, where)):
                self._quick[threads] = optimized

    def _optimizing_pays(self, computed: int) -> bool:
        """Whether runs of an optimized session make up for making it, and may stand for those of the model.

        Where a decision inside the model follows from its values, the order of sums could turn it.
        """
        nodes, weights = self.graph.gs.nodes, weight_bytes(self.graph.gs)
        if SAVED_PER_BYTE * computed <= OPTIMIZING_SECONDS + OPTIMIZING_PER_BYTE * weights or weights > MOST_TWICE:
            return False
        return len(nodes) <= MANY_NODES and not any(node.op in _DECIDES or bodies(node) for node in nodes)

    def _equal(self, exact: Sequence[Any], other: Sequence[Any]) -> bool:
        """Whether two runs of the model differ by the order of sums alone, in each output and each part of one."""
        for name, one, two in zip(self.graph.output_names, exact, other, strict=True):
            if not (is_float(one) and is_float(two) and one.shape == two.shape):
                return False
            pairs = [(one, two)]
            for join in self.joins[name]:
                pairs += zip(join.cut(one) or (), join.cut(two) or (), strict=True)
            for part, there in pairs:
                compared = SqnrAccumulator()
                compared.add(part, there)
                if compared.mismatched or not compared.value >= EQUAL_DB:
                    return False
        return True

    def as_users_run(self, *, threads: int) -> ort.InferenceSession:
        """The session with the optimizer, out of what was serialized for the comparison."""
        if threads not in self._optimized:
            with self._serialized(()) as model:
                self._optimized[threads] = look_session(model, threads=threads, optimize="all")
        return self._optimized[threads]

    @contextmanager
    def _serialized(self, further: Sequence[str]) -> Iterator[ModelInMemory | Path]:
        """The model for onnxruntime. Without further outputs it is kept: its weights are those that sessions hold."""
        if self._model is not None and not further:
            yield self._model
            return
        with float_model(self.graph, further) as model:
            if isinstance(model, ModelInMemory) and not further:
                self._model = model
            yield model

    def close(self) -> None:
        """Give back what was kept; comparisons after this begin anew."""
        self._sessions.clear()
        self._optimized.clear()
        self._quick.clear()
        self._model = self._first = None
        self._kept.clear()
        self._bytes = 0


_DECIDES = frozenset(
    ("ArgMax", "ArgMin", "NonMaxSuppression", "NonZero", "TopK", "Unique", "QuantizeLinear", "DynamicQuantizeLinear")
)
