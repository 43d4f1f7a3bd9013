"""What every kind of evidence is looked for in, and what it gives: a finding, and how it would be without it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from onnxq.diagnose.causes import Costly, Finding
from onnxq.diagnose.experiment import Change, range_of
from onnxq.diagnose.look import Seen
from onnxq.graph import Graph
from onnxq.ptq.method import State


@dataclass(frozen=True, eq=False)
class Case:
    """A quantized model with the quantizers that cost most, and what their tensors hold in the float model."""

    state: State
    costly: tuple[Costly, ...]
    seen: Mapping[str, Seen]

    @property
    def graph(self) -> Graph:
        return self.state.graph

    def computed(self) -> Iterator[tuple[Costly, Seen]]:
        """Quantizers of activations, each with what the largest of its tensors holds."""
        for row in self.costly:
            found = [self.seen[name] for name in self.observed(row) if name in self.seen]
            if found:
                yield row, max(found, key=lambda seen: seen.magnitude)

    def observed(self, row: Costly) -> tuple[str, ...]:
        """The tensors that set the range of a quantizer."""
        return self.state.plan[row.name].observe or row.tensors

    def represented(self, row: Costly) -> float:
        """The largest magnitude that a quantizer has numbers for."""
        low, high = range_of(self.state.qparams[row.name])
        return float(np.maximum(np.abs(low), np.abs(high)).max())


@dataclass(frozen=True, eq=False)
class Evidence:
    """A finding, and the change that takes it away."""

    finding: Finding
    change: Change


Look = Callable[[Case], Iterable[Evidence]]


def tensors_of(state: State, costly: Iterable[Costly]) -> list[str]:
    """The computed tensors that evidence is looked for in: those of the quantizers, and what a Concat makes them of."""
    found: dict[str, None] = {}
    for row in costly:
        for name in (*state.plan[row.name].observe, *row.tensors):
            found[name] = None
            maker = state.graph.producer(name)
            if maker is not None and maker.op == "Concat":
                found.update((tensor.name, None) for tensor in maker.inputs if tensor.name)
    return [name for name in found if not state.graph.is_constant(name)]
