"""Runs whose outputs land in the same memory each time: no copy, and no fresh pages from the system for every run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxq.errors import DataError
from onnxq.runtime.feeds import Feed
from onnxq.runtime.session import run_bound, run_session
from onnxq.runtime.tap import Tap

Signature = tuple[tuple[tuple[int, ...], str], ...]


@dataclass(slots=True)
class Reduced:
    """Minimum, maximum and number of values of a tensor that stayed inside the graph."""

    low: np.ndarray
    high: np.ndarray
    count: int


@dataclass(slots=True)
class Seen:
    """What one run shows. The arrays are overwritten by the next run.

    suspicious   reduced tensors whose sum is not finite: their range is unknown until they are looked at in full
    """

    values: dict[str, np.ndarray]
    reduced: dict[str, Reduced] = field(default_factory=dict)
    suspicious: list[str] = field(default_factory=list)


class BufferedTap:
    """Runs of a tap for one thread. Several threads share a tap, each with its own buffers.

    The first run with feeds of some shape finds out the shapes of all outputs; later ones of that shape write into
    buffers, which are as large as the largest run needed. An output whose shape changes between equal feeds is taken
    from onnxruntime as it comes.
    """

    def __init__(self, tap: Tap) -> None:
        self.tap = tap
        self._names = [*tap.outputs.values(), *(name for r in tap.reductions.values() for name in r.outputs)]
        self._memory: dict[str, np.ndarray] = {}
        self._shapes: dict[Signature, dict[str, tuple[tuple[int, ...], np.dtype]]] = {}
        self._loose: set[str] = set()
        self._binding = None if tap.session is None else tap.session.io_binding()

    def run(self, feed: Feed, where: str) -> Seen:
        """Values and ranges for one feed."""
        values = {name: feed[name] for name in self.tap.from_feed}
        if self.tap.session is None:
            return Seen(values)
        found = self._outputs(feed, where)
        values.update((tensor, found[name]) for tensor, name in self.tap.outputs.items())
        seen = Seen(values)
        for tensor, reduction in self.tap.reductions.items():
            minimum, maximum, total, size = (found[name] for name in reduction.outputs)
            if math.isfinite(float(total)):
                seen.reduced[tensor] = Reduced(minimum, maximum, int(size))
            else:
                seen.suspicious.append(tensor)
        return seen

    def _outputs(self, feed: Feed, where: str) -> dict[str, np.ndarray]:
        signature: Signature = tuple((array.shape, array.dtype.str) for array in feed.values())
        shapes = self._shapes.get(signature)
        if shapes is not None:
            try:
                return self._bound(feed, shapes, where)
            except DataError:
                # Shapes that depend on the data: the plain run below tells, or fails with the true reason.
                pass
        found = self._plain(feed, where)
        self._remember(signature, found)
        return found

    def _plain(self, feed: Feed, where: str) -> dict[str, np.ndarray]:
        return dict(zip(self._names, run_session(self.tap.session, self._names, feed, where), strict=True))

    def _remember(self, signature: Signature, found: dict[str, np.ndarray]) -> None:
        before = self._shapes.get(signature, {})
        shapes = {name: (array.shape, array.dtype) for name, array in found.items() if _plain_numbers(array)}
        self._loose |= {name for name, known in before.items() if shapes.get(name) != known}
        self._shapes[signature] = shapes

    def _bound(
        self, feed: Feed, shapes: dict[str, tuple[tuple[int, ...], np.dtype]], where: str
    ) -> dict[str, np.ndarray]:
        binding: Any = self._binding
        binding.clear_binding_inputs()
        binding.clear_binding_outputs()
        for name, array in feed.items():
            binding.bind_cpu_input(name, array)
        found: dict[str, np.ndarray] = {}
        loose = []
        for name in self._names:
            if name in shapes and name not in self._loose:
                shape, dtype = shapes[name]
                found[name] = self._buffer(name, shape, dtype)
                binding.bind_output(name, "cpu", 0, dtype, shape, found[name].ctypes.data)
            else:
                loose.append(name)
                binding.bind_output(name, "cpu")
        run_bound(self.tap.session, binding, where)
        if loose:
            returned = dict(zip(self._names, binding.get_outputs(), strict=True))
            found.update((name, returned[name].numpy()) for name in loose)
        return found

    def _buffer(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        size = math.prod(shape)
        memory = self._memory.get(name)
        if memory is None or memory.size < size or memory.dtype != dtype:
            memory = self._memory[name] = np.empty(max(size, 1), dtype)
        return memory[:size].reshape(shape)


def _plain_numbers(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.dtype.kind in "fiub" and array.dtype.itemsize <= 8
