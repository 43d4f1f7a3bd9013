"""The samples of one block, ready for fitting: which are fitted to, which decide, and how several run together.

One sample in HELD (of a few samples more) is kept out of the fitting; whether a block got better is decided on those.
Samples are stacked along their first axis where that gives each of them what it gets alone, which is tried once per
block with the float net; otherwise (unequal shapes, a batch size that is built in) they run one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from onnxq.errors import DataError
from onnxq.ptq.reconstruction.fitting.segment_net import SegmentNet
from onnxq.ptq.reconstruction.fitting.streams import Stream
from onnxq.torchnet.values import Value

HELD = 8
FEWEST_HELD = 4
"""Samples that decide, where there are twice as many."""
VALUES = 2**18
"""Numbers that the samples of a step read and make, where one has no more: a large image has as many positions as many
small ones."""
ALONE = 8
"""Samples of a step where they have to run one after the other, at most."""
UNFIT = (RuntimeError, ValueError, IndexError, TypeError, AttributeError, DataError)
"""The words of torch, and of nets, for shapes that do not fit."""
RELATIVE, ABSOLUTE = 1e-3, 1e-4
"""How much the results of a sample may change with its neighbours: torch adds up in another order."""


@dataclass(frozen=True)
class Batch:
    """Inputs from the quantized and from the float model, and what the float segment makes; None: not a number."""

    quantized: list[Value]
    float: list[Value]
    targets: list[Tensor | None]


class FitData(Protocol):
    """What a block is fitted to, in numbered pieces: those that are fitted to, and those that decide."""

    held: tuple[int, ...]
    fitted: tuple[int, ...]

    def per_step(self, batch: int) -> int: ...

    def size(self, count: int) -> int:
        """Numbers that so many pieces read and make."""

    def groups(self, numbers: Sequence[int], size: int = ...) -> list[Sequence[int]]: ...

    def batch(self, numbers: Sequence[int], *, float_inputs: bool = ...) -> Batch: ...


class BlockSamples:
    """The values of a block's samples in the two streams."""

    def __init__(
        self, reads: Sequence[str], makes: Sequence[str], quantized: Stream, float_: Stream, count: int
    ) -> None:
        self._reads = tuple(reads)
        self._makes = tuple(makes)
        self._quantized = quantized
        self._float = float_
        self.count = count
        self.stacked = False
        self._stacks: dict[tuple[int, str], Tensor] = {}
        self._common = {(id(stream), name) for stream, name in self._read() if self._has_in_common(stream, name)}
        usable = [number for number in range(count) if self._is_finite(number)] or list(range(count))
        every = min(HELD, max(2, len(usable) // FEWEST_HELD))
        self.held = tuple(usable[every - 1 :: every]) or (usable[0],)
        self.fitted = tuple(sorted(set(usable) - set(self.held))) or self.held

    def _is_finite(self, number: int) -> bool:
        """Whether a sample can be fitted to: one value that is no number would be the loss of all of them."""
        made = self._float.row(self._makes, number)
        return all(bool(torch.isfinite(value).all()) for value in made if _is_real(value))

    def same_shapes(self) -> bool:
        """Whether float and quantized model agree on the shapes of every sample."""
        return all(
            _shapes(self._quantized.row(self._reads, number)) == _shapes(self._float.row(self._reads, number))
            for number in range(self.count)
        )

    def try_stacking(self, net: SegmentNet, memory: int) -> None:
        """Find out whether samples can run together; `net` is the float segment.

        What fits into `memory` bytes is stacked once for all steps.
        """
        first, last = 0, self.count - 1
        if first == last:
            return
        shapes = _shapes(self._float.row((*self._reads, *self._makes), first))
        for number in range(1, self.count):
            if _shapes(self._float.row((*self._reads, *self._makes), number)) != shapes:
                return
        for stream, name in self._read():
            if not _has_axes(stream.get(name, 0)) and (id(stream), name) not in self._common:
                return
        self.stacked = True
        try:
            together = self.batch((first, last))
            with torch.no_grad():
                made = net(together.float)
        except UNFIT:
            self.stacked = False
            return
        self.stacked = all(map(agree, made, together.targets))
        if self.stacked:
            self._stack_all(memory)

    def _read(self) -> list[tuple[Stream, str]]:
        return [(stream, name) for stream in (self._quantized, self._float) for name in self._reads]

    def _has_in_common(self, stream: Stream, name: str) -> bool:
        """Whether all samples have one single number, or list of integers such as a shape, which is not stacked."""
        first = stream.get(name, 0)
        small = not _has_axes(first) or (first.ndim == 1 and not first.is_floating_point())
        return small and same([stream.get(name, number) for number in range(self.count)])

    def _stack_all(self, memory: int) -> None:
        for stream, name in [*self._read(), *((self._float, name) for name in self._makes)]:
            first = stream.get(name, 0)
            if isinstance(first, Tensor) and first.is_floating_point() and first.ndim > 0:
                memory -= first.numel() * first.element_size() * self.count
                if memory < 0:
                    return
                self._stacks[id(stream), name] = torch.stack([stream.get(name, n) for n in range(self.count)])

    def per_step(self, batch: int) -> int:
        """How many samples one step takes, each of which may have several rows."""
        values = [value for value in self._float.row(self._reads, 0) if isinstance(value, Tensor) and value.ndim > 0]
        rows = max((value.shape[0] for value in values), default=1) if self.stacked else 1
        wanted = max(1, min(batch // max(1, rows), VALUES // max(1, self.size(1))))
        return min(wanted if self.stacked else min(wanted, ALONE), len(self.fitted))

    def size(self, count: int) -> int:
        """Numbers that so many samples read and make."""
        row = self._float.row((*self._reads, *self._makes), 0)
        return count * sum(value.numel() for value in row if _is_real(value))

    def groups(self, numbers: Sequence[int], size: int = 32) -> list[Sequence[int]]:
        """Samples that run together."""
        step = size if self.stacked else 1
        return [numbers[i : i + step] for i in range(0, len(numbers), step)]

    def batch(self, numbers: Sequence[int], *, float_inputs: bool = True) -> Batch:
        """Some samples; `float_inputs` is off where nobody needs them."""
        targets = self._of(self._float, self._makes, numbers)
        return Batch(
            self._of(self._quantized, self._reads, numbers),
            self._of(self._float, self._reads, numbers) if float_inputs else [],
            [value if _is_real(value) else None for value in targets],
        )

    def _of(self, stream: Stream, names: Sequence[str], numbers: Sequence[int]) -> list[Value]:
        found = []
        for name in names:
            stack = self._stacks.get((id(stream), name))
            if stack is None:
                values = [stream.get(name, number) for number in numbers]
                alone = len(numbers) == 1 or (id(stream), name) in self._common or not _has_axes(values[0])
                found.append(values[0] if alone else torch.cat(values))
            else:
                found.append(stack[torch.as_tensor(numbers)].flatten(0, 1))
        return found


def _has_axes(value: Value) -> bool:
    return isinstance(value, Tensor) and value.ndim > 0


def same(values: Sequence[Value]) -> bool:
    """Whether values are all equal; of what is no tensor only None is known to be."""
    first = values[0]
    if not isinstance(first, Tensor):
        return all(value is first for value in values)
    return all(isinstance(value, Tensor) and torch.equal(first, value) for value in values[1:])


def _is_real(value: Value) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and value.numel() > 0


def _shapes(values: Sequence[Value]) -> list[tuple[int, ...] | None]:
    return [tuple(value.shape) if isinstance(value, Tensor) else None for value in values]


def agree(made: Value, wanted: Tensor | None) -> bool:
    """Whether a net makes what is wanted, but for the order in which torch adds up."""
    if wanted is None:
        return not _is_real(made)
    if not isinstance(made, Tensor) or made.shape != wanted.shape:
        return False
    size = float(torch.nan_to_num(wanted, 0.0, 0.0, 0.0).abs().max())
    return torch.allclose(made.double(), wanted.double(), rtol=RELATIVE, atol=ABSOLUTE * size, equal_nan=True)
