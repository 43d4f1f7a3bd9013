"""Control flow: If, Loop, Scan and SequenceMap run their bodies as Python does.

Values that bodies read from outside are found by the net. What the iterations make is stacked at the end, so gradients
pass through.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onnxq.errors import ModelError
from onnxq.torchnet.call import Body, Call
from onnxq.torchnet.ops.shaping import joined
from onnxq.torchnet.registry import Kernel, op
from onnxq.torchnet.values import Value, device_of, torch_dtype


@op("If", since=1)
def if_(call: Call) -> Kernel:
    then_branch, else_branch = call.body("then_branch"), call.body("else_branch")

    def run(condition: Tensor) -> tuple[Value, ...]:
        return tuple((then_branch if bool(condition) else else_branch)([]))

    return run


# ---- what iterations make --------------------------------------------------------------------------------------------


class Stack:
    """Joins what one output of a body is in each iteration, along a new axis."""

    def __init__(self, call: Call, output: Any, axis: int = 0, backward: bool = False) -> None:
        self._call, self._output, self._axis, self._backward = call, output, axis, backward

    def __call__(self, parts: Sequence[Value]) -> Value:
        if not parts:
            return self._nothing()
        return joined(parts[::-1] if self._backward else parts, self._axis, new_axis=True)

    def _nothing(self) -> Value:
        """No iterations: a tensor without values, as far as the body declares what they would be."""
        if self._output.dtype is None:
            raise ModelError(f"{self._call} had no iteration, and its body does not declare the type of its outputs")
        shape = [size if isinstance(size, int) else 0 for size in self._output.shape or ()]
        shape.insert(self._axis % (len(shape) + 1), 0)
        dtype = torch_dtype(self._output.dtype)
        return np.empty(shape, self._output.dtype) if dtype is None else torch.empty(shape, dtype=dtype)


def _collected(count: int) -> list[list[Value]]:
    return [[] for _ in range(count)]


# ---- Loop ------------------------------------------------------------------------------------------------------------


def _one_value(declared: Any) -> tuple[int, ...]:
    """The shape of a single number as a body declares it: some exporters write [1] instead of []."""
    return (1,) if declared.shape is not None and len(declared.shape) == 1 else ()


@op("Loop", since=1)
def loop(call: Call) -> Kernel:
    """The body gets the iteration, the condition and the carried values, and returns the last two and its outputs."""
    body = call.body("body")
    carried_count = body.input_count - 2
    scope = call.attribute("body")
    stacks = [Stack(call, output) for output in scope.outputs[1 + carried_count :]]
    trip_shape, condition_shape = (_one_value(tensor) for tensor in scope.inputs[:2])
    trips_of = call.ints(0)

    def run(trips: Value = None, condition: Value = None, *initial: Value) -> tuple[Value, ...]:
        last = None if trips is None else trips_of(trips)[0]
        carried = [*initial, *[None] * (carried_count - len(initial))]
        device = device_of(trips, condition, *initial)
        condition = torch.tensor(True, device=device) if condition is None else condition
        made = _collected(len(stacks))
        trip = 0
        while (last is None or trip < last) and bool(condition):
            number = torch.full(trip_shape, trip, device=device)
            condition, *rest = body([number, condition.reshape(condition_shape), *carried])
            carried = rest[:carried_count]
            for part, value in zip(made, rest[carried_count:], strict=True):
                part.append(value)
            trip += 1
        return (*carried, *[stack(parts) for stack, parts in zip(stacks, made, strict=True)])

    return run


# ---- Scan ------------------------------------------------------------------------------------------------------------


def _scan(
    body: Body, states: Sequence[Value], scanned: Sequence[Sequence[Value]], output_count: int
) -> tuple[list[Value], list[list[Value]]]:
    """The last states, and what the body made of each row of the inputs."""
    carried = list(states)
    made = _collected(output_count)
    for rows in zip(*scanned, strict=True):
        outputs = body([*carried, *rows])
        carried = outputs[: len(carried)]
        for part, value in zip(made, outputs[len(carried) :], strict=True):
            part.append(value)
    return carried, made


def _rows(x: Value, axis: int, backward: bool) -> Sequence[Value]:
    rows = list(x.unbind(axis)) if isinstance(x, Tensor) else list(np.moveaxis(x, axis, 0))
    return rows[::-1] if backward else rows


@op("Scan", since=9)
def scan(call: Call) -> Kernel:
    body = call.body("body")
    scan_count = call.attribute("num_scan_inputs")
    state_count = body.input_count - scan_count
    declared = call.attribute("body").outputs[state_count:]
    axes = call.attribute("scan_input_axes", None) or [0] * scan_count
    backward = call.attribute("scan_input_directions", None) or [0] * scan_count
    output_axes = call.attribute("scan_output_axes", None) or [0] * len(declared)
    output_backward = call.attribute("scan_output_directions", None) or [0] * len(declared)
    stacks = [
        Stack(call, output, axis, bool(turned))
        for output, axis, turned in zip(declared, output_axes, output_backward, strict=True)
    ]

    def run(*inputs: Value) -> tuple[Value, ...]:
        scanned = [
            _rows(x, axis, bool(turned)) for x, axis, turned in zip(inputs[state_count:], axes, backward, strict=True)
        ]
        states, made = _scan(body, inputs[:state_count], scanned, len(stacks))
        return (*states, *[stack(parts) for stack, parts in zip(stacks, made, strict=True)])

    return run


@op("Scan", since=8, until=8)
def scan_batches(call: Call) -> Kernel:
    """Every sample of the batch for itself, over axis 1; outputs of short samples are filled up with zeros."""
    body = call.body("body")
    scan_count = call.attribute("num_scan_inputs")
    state_count = body.input_count - scan_count
    declared = call.attribute("body").outputs[state_count:]
    backward = call.attribute("directions", None) or [0] * scan_count
    stacks = [Stack(call, output) for output in declared]

    def run(lengths: Value, *inputs: Value) -> tuple[Value, ...]:
        longest = inputs[state_count].shape[1]
        results: list[list[Value]] = _collected(state_count + len(stacks))
        for sample in range(inputs[0].shape[0]):
            length = longest if lengths is None else int(lengths[sample])
            scanned = [
                _rows(x[sample][:length], 0, bool(turned))
                for x, turned in zip(inputs[state_count:], backward, strict=True)
            ]
            states, made = _scan(body, [x[sample] for x in inputs[:state_count]], scanned, len(stacks))
            outputs = [_filled(stack(parts), longest) for stack, parts in zip(stacks, made, strict=True)]
            for result, value in zip(results, [*states, *outputs], strict=True):
                result.append(value)
        return tuple(joined(parts, 0, new_axis=True) for parts in results)

    return run


def _filled(rows: Tensor, length: int) -> Tensor:
    return torch.cat([rows, rows.new_zeros(length - rows.shape[0], *rows.shape[1:])])


# ---- sequences -------------------------------------------------------------------------------------------------------


@op("SequenceMap", since=17)
def sequence_map(call: Call) -> Kernel:
    """The body for each item; other inputs are sequences of the same length, or tensors that every item gets."""
    body = call.body("body")

    def run(first: list[Value], *others: Value) -> tuple[list[Value], ...]:
        made = _collected(body.output_count)
        for number, item in enumerate(first):
            rest = [other[number] if isinstance(other, list) else other for other in others]
            for part, value in zip(made, body([item, *rest]), strict=True):
                part.append(value)
        return tuple(made)

    return run
