"""Gradient checkpointing: the values inside a part of the net are not kept for the gradients but computed again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from onnxq.torchnet.program import Program
from onnxq.torchnet.values import Value


def run_in_segments(program: Program, slots: list[Value], count: int, tell: Callable[[bool], None]) -> None:
    """Run a program in `count` parts of as many steps each; `tell` is called around each second run."""
    size = -(-len(program.steps) // count)
    for first in range(0, len(program.steps), size):
        _run_segment(program, slots, first, min(first + size, len(program.steps)), tell)


def _run_segment(program: Program, slots: list[Value], first: int, last: int, tell: Callable[[bool], None]) -> None:
    needed, made = _boundary(program, first, last)
    # Constants are not arguments: torch keeps those for the second run and refuses statistics that have changed since.
    constants = set(program.constants.values())
    held = {slot: slots[slot] for slot in needed if slot in constants}
    before = {slot: _as_it_was(value) for slot, value in held.items()}
    first_run = True
    given = [slot for slot in needed if slot not in constants]

    def segment(*values: Value) -> tuple[Value, ...]:
        nonlocal first_run
        inside: list[Value] = [None] * program.size
        for slot, value in (*(held if first_run else before).items(), *zip(given, values, strict=True)):
            inside[slot] = value
        first_run = False
        program.run(inside, first, last)
        return tuple(inside[slot] for slot in made)

    @contextmanager
    def again() -> Iterator[None]:
        tell(True)
        try:
            yield
        finally:
            tell(False)

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), again()

    results: Sequence[Value] = checkpoint(
        segment, *[slots[slot] for slot in given], use_reentrant=False, context_fn=contexts
    )
    for step in program.steps[first:last]:
        for slot in step.done:
            slots[slot] = None
    for slot, value in zip(made, results, strict=True):
        slots[slot] = value


def _as_it_was(value: Value) -> Value:
    """What the second run reads: statistics of batch norms, which are vectors, have moved by then."""
    is_statistic = isinstance(value, Tensor) and value.dim() == 1 and not isinstance(value, nn.Parameter)
    return value.clone() if is_statistic else value


def _boundary(program: Program, first: int, last: int) -> tuple[list[int], list[int]]:
    """The slots that a part reads from before it, and those that it makes for what comes after it."""
    made: dict[int, None] = {}
    given: dict[int, None] = {}
    for step in program.steps[first:last]:
        read = [*step.inputs, *(slot for _, fetched in step.bodies for slot in fetched)]
        given.update((slot, None) for slot in read if slot not in made)
        made.update((slot, None) for slot in step.outputs)
    over = {slot for step in program.steps[first:last] for slot in step.done}
    return list(given), [slot for slot in made if slot not in over]
