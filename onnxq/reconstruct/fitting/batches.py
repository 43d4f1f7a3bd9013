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

from onnxq.reconstruct.fitting.segment_net import SegmentNet
from onnxq.reconstruct.fitting.streams import Stream
from onnxq.torchnet.values import Value

HELD = 8
FEWEST_HELD = 4
"""Samples that decide, where there are twice as many."""
VALUES = 2**18
"""Numbers that the samples of a step read and make, where one has no more: a large image has as many positions as many
small ones."""
ALONE = 8
"""Samples of a step where they have to run one after the other, at most."""
RELATIVE, ABSOLUTE = 1e-3, 1e-4
"""How much the results of a sample may change with its neighbours: torch adds up in another order."""


@dataclass(frozen=True)
class Batch:
    """Inputs from the quantized and from the float model, and what the float segment makes; None: not a number."""

    quantized: list[Value]
    float: list[Value]
    targets: list[Tensor | None]


class Evidence(Protocol):
    """What a block is fitted to, in numbered pieces: those that are fitted to, and those that decide."""

    held: tuple[int, ...]
    fitted: tuple[int, ...]

    def per_step(self, batch: int) -> int: ...

    def size(self, count: int) -> int:
        """Numbers that so many pieces read and make."""

    def groups(self, numbers: Sequence[int], size: int = ...) -> list[Sequence[int]]: ...

    def batch(self, numbers: Sequence[int], *, float_inputs: bool = ...) -> Batch: ...


class Samples:
    """The values of a block's samples in the two streams."""

    def __init__(
        self, reads: Sequence[str], makes: Sequence[str], quantized: Stream, float_: Stream, count: int
    ) -> None:
        self._reads = tuple(reads)
        self._makes = tuple(makes)
        self._quantized = quantized
        self._float = float_
        every = min(HELD, max(2, count // FEWEST_HELD))
        self.held = tuple(range(every - 1, count, every)) or (0,)
        self.fitted = tuple(sorted(set(range(count)) - set(self.held))) or self.held
        self.stacked = False
        self.count = count
        self._stacks: dict[tuple[int, str], Tensor] = {}

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
        self.stacked = True
        together = self.batch((first, last))
        try:
            with torch.no_grad():
                made = net(together.float)
        except (RuntimeError, ValueError, IndexError, TypeError):  # torch's words for shapes that do not fit
            self.stacked = False
            return
        self.stacked = all(map(agree, made, together.targets))
        if self.stacked:
            self._stack_all(memory)

    def _stack_all(self, memory: int) -> None:
        wanted = [(stream, name) for stream in (self._quantized, self._float) for name in self._reads]
        wanted += [(self._float, name) for name in self._makes]
        for stream, name in wanted:
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
                found.append(_together([stream.get(name, number) for number in numbers]))
            else:
                found.append(stack[torch.as_tensor(numbers)].flatten(0, 1))
        return found


def _together(values: Sequence[Value]) -> Value:
    """The values of several samples, one below the other; small integers that all have in common stay as they are."""
    first = values[0]
    if len(values) == 1 or not isinstance(first, Tensor) or first.ndim == 0:
        return first
    if not first.is_floating_point() and first.ndim == 1 and all(torch.equal(first, other) for other in values[1:]):
        return first
    return torch.cat(list(values))


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
