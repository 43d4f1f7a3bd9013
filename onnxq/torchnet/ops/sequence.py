"""Sequences of tensors, which are Python lists and never changed in place, and optional values, which may be None."""

from __future__ import annotations

from typing import Any

import torch

from onnxq.errors import DataError
from onnxq.torchnet.call import Call
from onnxq.torchnet.registry import Kernel, op
from onnxq.torchnet.values import Value, as_ints, device_of

Sequence = list[Any]


@op("SequenceEmpty", since=11)
def sequence_empty(call: Call) -> Kernel:
    return lambda: []


@op("SequenceConstruct", since=11)
def sequence_construct(call: Call) -> Kernel:
    return lambda *items: list(items)


@op("SequenceLength", since=11)
def sequence_length(call: Call) -> Kernel:
    return lambda sequence: torch.tensor(len(sequence), dtype=torch.int64, device=device_of(sequence))


def _place(call: Call, position: Value, first: int, last: int) -> int:
    """A position in a sequence, which must be in [first, last]."""
    place = as_ints(position)[0]
    if not first <= place <= last:
        raise DataError(f"{call}: position {place} is outside [{first}, {last}]")
    return place


@op("SequenceAt", since=11)
def sequence_at(call: Call) -> Kernel:
    def run(sequence: Sequence, position: Value) -> Value:
        return sequence[_place(call, position, -len(sequence), len(sequence) - 1)]

    return run


@op("SequenceInsert", since=11)
def sequence_insert(call: Call) -> Kernel:
    def run(sequence: Sequence, item: Value, position: Value = None) -> Sequence:
        place = len(sequence) if position is None else _place(call, position, -len(sequence), len(sequence))
        return [*sequence[:place], item, *sequence[place:]]

    return run


@op("SequenceErase", since=11)
def sequence_erase(call: Call) -> Kernel:
    def run(sequence: Sequence, position: Value = None) -> Sequence:
        place = -1 if position is None else _place(call, position, -len(sequence), len(sequence) - 1)
        kept = list(sequence)
        del kept[place]
        return kept

    return run


@op("Optional", since=15)
def optional(call: Call) -> Kernel:
    return lambda value=None: value


@op("OptionalHasElement", since=15)
def optional_has_element(call: Call) -> Kernel:
    return lambda value=None: torch.tensor(value is not None, device=device_of(value))


@op("OptionalGetElement", since=15)
def optional_get_element(call: Call) -> Kernel:
    def run(value: Value = None) -> Value:
        if value is None:
            raise DataError(f"{call} reads an optional that has no value; ask OptionalHasElement first")
        return value

    return run
