"""The float model of a comparison: run once, however many files are held against it.

Where the kernels of a processor saturate, a model is written in several ways, and each file is compared on the same
samples. What the float model makes of them, and what follows from its graph, is the same for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxq.graph import Graph
from onnxq.graph.joined import Join, joins, with_shapes
from onnxq.runtime.feeds import Feed
from onnxq.runtime.sections import SectionedSession, unoptimized_session_of
from onnxq.runtime.session import ModelInMemory, float_model, look_session, run_session

if TYPE_CHECKING:
    import onnxruntime as ort


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
            names = [*self.graph.output_names, *further]
            found = run_session(self._sessions[tuple(further), threads], names, feed, where)
            size = sum(value.nbytes for value in found if isinstance(value, np.ndarray))
            plain = all(isinstance(value, np.ndarray) for value in found)
            if plain and self._bytes + size <= self._keep:
                self._bytes += size
                self._kept[key] = found
        return found

    def prepare(self, further: Sequence[str], threads: int | None) -> None:
        """Make the session, once for all files: without the optimizer, whose fusions are not all right."""
        key = (tuple(further), threads)
        if key not in self._sessions:
            with self._serialized(further) as model:
                self._sessions[key] = unoptimized_session_of(model, threads=threads)

    def as_users_run(self, *, threads: int) -> ort.InferenceSession:
        """A new session with the optimizer, out of what was serialized for the comparison."""
        with self._serialized(()) as model:
            return look_session(model, threads=threads, optimize="all")

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
        self._model = None
        self._kept.clear()
        self._bytes = 0
