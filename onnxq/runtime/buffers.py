"""Runs whose outputs land in the same memory each time: no copy, and no fresh pages from the system for every run."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxq.errors import DataError, MachineError
from onnxq.runtime.feeds import Feed
from onnxq.runtime.sections import SectionedSession
from onnxq.runtime.session import run_bound, run_session
from onnxq.runtime.tap import Tap

Signature = tuple[tuple[tuple[int, ...], str], ...]
"""Shapes and types of a feed."""

MOST_SHAPES = 16
"""Feeds of so many different shapes are remembered; data where every sample has its own is run as it comes."""

Shapes = dict[str, tuple[tuple[int, ...], np.dtype]]
"""Output -> its shape and type."""

MOST_TOGETHER = 1 << 14
"""Tensors of so many values lie in one array, whose ranges take one call for all: the call is what costs there."""

_APART = 16
"""Tensors in one array begin at multiples of so many values, as kernels like it."""


@dataclass(slots=True)
class Reduced:
    """Minimum, maximum and number of values of the tensors that stayed inside the graph, in the order of the tap."""

    low: np.ndarray
    high: np.ndarray
    count: np.ndarray


@dataclass(slots=True)
class Seen:
    """What one run shows. The arrays of `values` are overwritten by the next run.

    suspicious   reduced tensors whose sum is not finite: their range is unknown until they are looked at in full
    together     ranges of small tensors, in the order of `BufferedTap.together`; NaN or infinite where a value is
    """

    values: dict[str, np.ndarray]
    reduced: Reduced | None
    suspicious: list[str]
    together: Reduced | None = None


class BufferedTap:
    """Runs of a tap for one thread. Several threads share a tap, each with its own buffers.

    The first run with feeds of some shape finds out the shapes of all outputs; later ones of that shape write into
    buffers, which are as large as the largest run needed. An output whose shape changes between equal feeds is taken
    from onnxruntime as it comes.
    """

    def __init__(self, tap: Tap, ranged: Collection[str] = ()) -> None:
        """`ranged` are tensors of which the range is wanted: small ones among them are `together`."""
        self.tap = tap
        self.together: list[str] = []
        self._ranged = {tap.outputs[tensor]: tensor for tensor in ranged if tensor in tap.outputs}
        self._edges, self._counts, self._row = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(1, np.float32)
        self._names = [*tap.outputs.values(), *(name for r in tap.reductions.values() for name in r.outputs)]
        self._memory: dict[str, np.ndarray] = {}
        self._shapes: dict[Signature, Shapes] = {}
        self._loose: set[str] = set()
        whole = None if isinstance(tap.session, SectionedSession) else tap.session
        self._binding = None if whole is None else whole.io_binding()
        self._bound_to: Signature | None = None
        self._bound: dict[str, np.ndarray] = {}

    def knows(self, feed: Feed) -> bool:
        """Whether feeds of these shapes were run before."""
        return _signature(feed) in self._shapes

    def run(self, feed: Feed, where: str) -> Seen:
        """Values and ranges for one feed."""
        values = {name: feed[name] for name in self.tap.from_feed}
        found = self._outputs(feed, where) if self.tap.session is not None else {}
        values.update((tensor, found[name]) for tensor, name in self.tap.outputs.items())
        together = self._ranges() if found is self._bound and self.together else None
        numbers = [[found[name] for name in reduction.outputs] for reduction in self.tap.reductions.values()]
        if not numbers:
            return Seen(values, None, [], together)
        low, high, total, size = (np.array(column) for column in zip(*numbers, strict=True))
        good = np.isfinite(total)
        suspicious = (
            [] if good.all() else [name for name, fine in zip(self.tap.reductions, good, strict=True) if not fine]
        )
        return Seen(values, Reduced(low, high, size), suspicious, together)

    @property
    def row(self) -> np.ndarray:
        """The values of the tensors that lie together, from the last run."""
        return self._row

    @property
    def edges(self) -> np.ndarray:
        """Where each of them begins and ends in the row."""
        return self._edges.reshape(-1, 2)

    def _ranges(self) -> Reduced:
        """Of the tensors that lie together. What is between two of them is looked at for nothing."""
        low, high = (extreme.reduceat(self._row, self._edges)[::2] for extreme in (np.minimum, np.maximum))
        return Reduced(low, high, self._counts)

    def _outputs(self, feed: Feed, where: str) -> dict[str, np.ndarray]:
        signature = _signature(feed)
        if (
            self._binding is not None
            and signature in self._shapes
            and all(_plain_numbers(array) for array in feed.values())
        ):
            try:
                return self._run_bound(feed, signature, where)
            except (DataError, MachineError):
                # Shapes that depend on the data: the plain run below tells, or fails with the true reason.
                self._bound_to = None
        found = dict(zip(self._names, run_session(self.tap.session, self._names, feed, where), strict=True))
        self._remember(signature, found)
        return found

    def _remember(self, signature: Signature, found: dict[str, np.ndarray]) -> None:
        before = self._shapes.get(signature, {})
        shapes = {name: (array.shape, array.dtype) for name, array in found.items() if _plain_numbers(array)}
        self._loose |= {name for name, known in before.items() if shapes.get(name) != known}
        if len(self._shapes) >= MOST_SHAPES:
            del self._shapes[next(iter(self._shapes))]
        self._shapes[signature] = shapes

    def _run_bound(self, feed: Feed, signature: Signature, where: str) -> dict[str, np.ndarray]:
        binding: Any = self._binding
        if signature != self._bound_to:
            binding.clear_binding_inputs()
            self._bind_outputs(self._shapes[signature])
            self._bound_to = signature
        for name, array in feed.items():
            binding.bind_cpu_input(name, array)
        run_bound(self.tap.session, binding, where)
        if len(self._bound) == len(self._names):
            return self._bound
        returned = zip(self._names, binding.get_outputs(), strict=True)
        return {name: self._bound[name] if name in self._bound else value.numpy() for name, value in returned}

    def _bind_outputs(self, shapes: Shapes) -> None:
        """Connect each output with its buffer; this takes longer than a small network runs, so it is kept."""
        binding: Any = self._binding
        binding.clear_binding_outputs()
        self._bound = self._lay_together(shapes)
        for name in self._names:
            if name in shapes and name not in self._loose:
                shape, dtype = shapes[name]
                if name not in self._bound:
                    self._bound[name] = self._buffer(name, shape, dtype)
                buffer = self._bound[name]
                binding.bind_output(name, "cpu", 0, dtype, shape, buffer.ctypes.data)
            else:
                binding.bind_output(name, "cpu")

    def _lay_together(self, shapes: Shapes) -> dict[str, np.ndarray]:
        """Buffers of small tensors with a wanted range, one behind the other."""
        small = {
            name: shapes[name][0]
            for name in self._ranged
            if name in shapes and name not in self._loose and shapes[name][1] == np.float32
        }
        small = {name: shape for name, shape in small.items() if 0 < math.prod(shape) <= MOST_TOGETHER}
        self._counts = np.array([math.prod(shape) for shape in small.values()], np.int64)
        begins = np.concatenate([[0], np.cumsum(-(-self._counts // _APART) * _APART)])
        self._edges = np.stack([begins[:-1], begins[:-1] + self._counts], axis=1).reshape(-1)
        self._row = np.zeros(int(begins[-1]) + 1, np.float32)  # one more: the last edge has to be inside
        self.together = [self._ranged[name] for name in small]
        places = zip(small.items(), begins.tolist(), self._counts.tolist(), strict=False)
        return {name: self._row[begin : begin + count].reshape(shape) for (name, shape), begin, count in places}

    def _buffer(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        size = math.prod(shape)
        memory = self._memory.get(name)
        if memory is None or memory.size < size or memory.dtype != dtype:
            memory = self._memory[name] = np.empty(max(size, 1), dtype)
        return memory[:size].reshape(shape)


def _signature(feed: Feed) -> Signature:
    return tuple((array.shape, array.dtype.str) for array in feed.values())


def _plain_numbers(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.dtype.kind in "fiub"
