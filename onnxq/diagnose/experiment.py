"""States with one thing changed: how it would be without a cause, whether the target could do that or not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from onnxq.numerics import qparams_from_range
from onnxq.ptq.method import State
from onnxq.types import PerChannel, PerTensor, QParams, QuantSpec

Change = Callable[[State], State]
"""Takes one cause away."""

WIDE = 16
"""Bits that leave next to no noise."""


def members(state: State, leader: str) -> list[str]:
    """The tensors that use the parameters of a quantizer, the leader first."""
    return [placement.tensor for placement in state.plan if state.plan.leader(placement.tensor) == leader]


def range_of(parameters: QParams) -> tuple[np.ndarray, np.ndarray]:
    """The values that a quantizer represents; of several scales an entry each."""
    spec = parameters.spec
    low, high = spec.ends if spec.has_scale else (-np.inf, np.inf)
    scale, zero = parameters.scale.astype(np.float64), parameters.zero_point.astype(np.float64)
    return (low - zero) * scale, (high - zero) * scale


def step_of(parameters: QParams) -> float:
    """The largest step of a quantizer whose steps are even."""
    return float(parameters.scale.max())


def widened(spec: QuantSpec) -> QuantSpec:
    """The same format with 16 bits."""
    return spec.replace(dtype=spec.format.with_bits(WIDE), quant_min=None, quant_max=None)


def with_parameters(state: State, tensors: Iterable[str], parameters: Callable[[str], QParams | None]) -> State:
    """Other parameters for some tensors, with their format; None leaves one as it is. Nobody leads them any more."""
    changed = replace(state, qparams=state.copy().qparams)
    placements = dict(state.plan.placements)
    for name in tensors:
        found = parameters(name)
        if found is not None:
            placements[name] = replace(placements[name], spec=found.spec, tie=None)
            changed.qparams.put(name, found, "experiment")
    return replace(changed, plan=replace(state.plan, placements=placements))


def with_range(leader: str, low: float, high: float) -> Change:
    """One quantizer with another range."""

    def change(state: State) -> State:
        found = qparams_from_range(low, high, state.plan[leader].spec)
        return with_parameters(state, members(state, leader), lambda name: found)

    return change


def with_more_bits(leader: str) -> Change:
    """One quantizer with 16 bits and the range that it has."""

    def change(state: State) -> State:
        def parameters(name: str) -> QParams | None:
            held = state.qparams[name]
            if not held.spec.evenly_spaced or held.spec.bits >= WIDE:
                return None
            return qparams_from_range(*range_of(held), widened(held.spec))

        return with_parameters(state, members(state, leader), parameters)

    return change


def with_channels(tensor: str, axis: int, low: np.ndarray, high: np.ndarray) -> Change:
    """One tensor with a scale for each index along an axis."""

    def change(state: State) -> State:
        held = state.qparams[tensor].spec
        if not held.evenly_spaced or not isinstance(held.granularity, PerTensor):
            return state
        spec = held.replace(granularity=PerChannel(axis))
        return with_parameters(state, [tensor], lambda name: qparams_from_range(low, high, spec))

    return change


def without(tensors: Iterable[str]) -> Change:
    """Some tensors in float."""
    gone = set(tensors)

    def change(state: State) -> State:
        placements = {}
        for placement in state.plan:
            if placement.tensor not in gone:
                tie = None if placement.tie in gone else placement.tie
                placements[placement.tensor] = replace(placement, tie=tie)
        return replace(state, plan=replace(state.plan, placements=placements))

    return change


def in_turn(changes: Iterable[Change]) -> Change:
    """One change after the other."""
    listed = tuple(changes)

    def change(state: State) -> State:
        for item in listed:
            state = item(state)
        return state

    return change
