"""Weights whose scales may be chosen: those that lead all tensors with the same scale, if all of these are weights."""

from __future__ import annotations

import numpy as np

from onnxq.improvement import State
from onnxq.types import PerTensor, Placement, QParams, QuantPlan


def with_own_scale(plan: QuantPlan, placements: list[Placement]) -> tuple[list[Placement], list[str]]:
    """The leaders among `placements`, and a line for each one whose scale is not theirs to choose."""
    chosen = {placement.tensor for placement in placements}
    own, declined = [], []
    for placement in placements:
        name = placement.tensor
        others = [other for other in sharing(plan, name) if other != name]
        strangers = [other for other in others if other not in chosen]
        if placement.observer.partition(":")[0] == "fixed":
            declined.append(f"{name}: its range is given")
        elif any(field == "observer" for field, _ in placement.set_by):
            declined.append(f"{name}: the configuration says how its range is found ({placement.observer})")
        elif strangers:
            declined.append(f"{name}: it has the scale of '{strangers[0]}'")
        elif others and not isinstance(placement.spec.granularity, PerTensor):
            declined.append(f"{name}: it shares more than one scale with '{others[0]}'")
        elif plan.leader(name) == name:
            own.append(placement)
    return own, declined


def sharing(plan: QuantPlan, tensor: str) -> list[str]:
    """All tensors with the parameters of `tensor`, itself included."""
    leader = plan.leader(tensor)
    return [placement.tensor for placement in plan if plan.leader(placement.tensor) == leader]


def shared_values(state: State, placement: Placement) -> np.ndarray:
    """The values of a weight in float32; where others share its one scale, all their values in a row."""
    names = sharing(state.plan, placement.tensor)
    arrays = [state.graph.values(name).astype(np.float32) for name in names]
    return arrays[0] if len(arrays) == 1 else np.concatenate([array.ravel() for array in arrays])


def put_shared(state: State, placement: Placement, qparams: QParams, origin: str) -> None:
    """Give a weight, and those that share its scale, other parameters."""
    for name in sharing(state.plan, placement.tensor):
        state.qparams.put(name, qparams, origin if name == placement.tensor else f"tied to {placement.tensor}")
