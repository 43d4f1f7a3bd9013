"""Tensors of unlike ranges with one scale: tied by a target or a configuration, or joined to one tensor by a Concat."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from onnxq.diagnose.causes import Costly, Member, TiedRanges
from onnxq.diagnose.evidence.case import Case, Evidence
from onnxq.diagnose.experiment import Change, in_turn, step_of, with_channels, with_parameters, without
from onnxq.graph import Node
from onnxq.numerics import qparams_from_range
from onnxq.ptq.method import State
from onnxq.types import QParams

FEWEST_STEPS = 8.0
"""A member is lost where its largest value has fewer steps than this."""

UNLIKE = 8.0
"""Members are unlike where one is this many times as large as another."""


def ties(case: Case) -> Iterator[Evidence]:
    for row in case.costly:
        if case.graph.is_constant(row.name) or not case.state.qparams[row.name].spec.evenly_spaced:
            continue
        found = _tied(case, row) or _joined(case, row)
        if found is not None:
            yield found


def _tied(case: Case, row: Costly) -> Evidence | None:
    """Several tensors that share a quantizer."""
    names = [name for name in dict.fromkeys((*row.tensors, *case.observed(row))) if name in case.seen]
    found = _members(case, row, names)
    if found is None:
        return None
    node = next((node.name for node in _concats(case, names) if _reads_any(node, names)), None)
    changes = [_own_ranges(case, row), *(_apart(case, made) for made in row.tensors)]
    finding = TiedRanges(row.name, node, step_of(case.state.qparams[row.name]), found)
    return Evidence(finding, in_turn(change for change in changes if change is not None))


def _joined(case: Case, row: Costly) -> Evidence | None:
    """A tensor with one scale that a Concat has made of unlike ones."""
    for name in row.tensors:
        maker = case.graph.producer(name)
        if maker is None or maker.op != "Concat":
            continue
        found = _members(case, row, [tensor.name for tensor in maker.inputs if tensor.name in case.seen])
        if found is not None:
            finding = TiedRanges(row.name, maker.name, step_of(case.state.qparams[row.name]), found)
            return Evidence(finding, _apart(case, name) or without([name]))
    return None


def _members(case: Case, row: Costly, names: list[str]) -> tuple[Member, ...] | None:
    """Members with their ranges, where one of them is lost beside another."""
    step = step_of(case.state.qparams[row.name])
    sizes = {name: case.seen[name].magnitude for name in names}
    largest = max(sizes.values(), default=0.0)
    lost = {name for name, size in sizes.items() if 0 < size < FEWEST_STEPS * step and size * UNLIKE < largest}
    if not lost or len(lost) == len(names):
        return None
    return tuple(Member(name, case.seen[name].low, case.seen[name].high, name in lost) for name in names)


def _concats(case: Case, names: list[str]) -> list[Node]:
    makers = [case.graph.producer(name) for name in names]
    readers = [use.node for name in names for use in case.graph.consumers(name)]
    return [node for node in (*makers, *readers) if node is not None and node.op == "Concat"]


def _reads_any(node: Node, names: list[str]) -> bool:
    return any(tensor.name in names for tensor in node.inputs)


def _own_ranges(case: Case, row: Costly) -> Change:
    def change(state: State) -> State:
        def parameters(name: str) -> QParams | None:
            seen = case.seen.get(name)
            return None if seen is None else qparams_from_range(seen.low, seen.high, state.plan[name].spec)

        return with_parameters(state, row.tensors, parameters)

    return change


def _apart(case: Case, tensor: str) -> Change | None:
    """Scales of their own for what a Concat has put into one tensor; None where it is no such tensor."""
    maker = case.graph.producer(tensor)
    if maker is None or maker.op != "Concat":
        return None
    shapes = [case.graph.shape(part) for part in maker.inputs]
    rank = len(shapes[0] or ())
    axis = int(maker.attrs.get("axis", 0)) % max(rank, 1)
    lengths = [shape[axis] if shape is not None and len(shape) > axis else None for shape in shapes]
    seen = [case.seen.get(part.name) for part in maker.inputs]
    if any(one is None for one in seen) or not all(isinstance(length, int) for length in lengths):
        return None
    counts = [int(length) for length in lengths if isinstance(length, int)]
    low = np.repeat([one.low for one in seen if one is not None], counts)
    high = np.repeat([one.high for one in seen if one is not None], counts)
    return with_channels(tensor, axis, low, high)
