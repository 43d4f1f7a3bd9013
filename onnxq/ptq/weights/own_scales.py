"""Weights whose scales may be chosen: those that lead all tensors with the same scale, if all of these are weights."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from onnxq.graph import Graph
from onnxq.observers import make_observer
from onnxq.observers.fixed import Fixed
from onnxq.ptq.method import State
from onnxq.ptq.weights.layers import quantized_weights
from onnxq.types import PerTensor, Placement, QParams, QParamsTable, QuantPlan


class Sharing:
    """Which tensors of a plan have the same parameters, found in one walk over it."""

    def __init__(self, plan: QuantPlan) -> None:
        self._plan = plan
        self._members: dict[str, list[str]] = {}
        for placement in plan:
            self._members.setdefault(plan.leader(placement.tensor), []).append(placement.tensor)

    def leader(self, tensor: str) -> str:
        return self._plan.leader(tensor)

    def members(self, tensor: str) -> Sequence[str]:
        """All tensors with the parameters of `tensor`, itself included, in plan order."""
        return self._members[self._plan.leader(tensor)]

    def alone(self, tensor: str) -> bool:
        """Whether no other tensor has the parameters of `tensor`."""
        return len(self.members(tensor)) == 1

    def strangers(self, known: Collection[str]) -> dict[str, str]:
        """Leader -> the first of its members that is not among `known`, where there is one."""
        found = {leader: next((n for n in names if n not in known), None) for leader, names in self._members.items()}
        return {leader: name for leader, name in found.items() if name is not None}


def with_own_scale(sharing: Sharing, placements: list[Placement]) -> tuple[list[Placement], list[str]]:
    """The leaders among `placements`, and a line for each one whose scale is not theirs to choose."""
    strangers = sharing.strangers({placement.tensor for placement in placements})
    own, declined = [], []
    for placement in placements:
        name = placement.tensor
        stranger = strangers.get(sharing.leader(name))
        if isinstance(make_observer(placement.observer), Fixed):
            declined.append(f"{name}: its range is given")
        elif any(field == "observer" for field, _ in placement.set_by):
            declined.append(f"{name}: the configuration says how its range is found ({placement.observer})")
        elif stranger is not None:
            declined.append(f"{name}: it has the scale of '{stranger}'")
        elif not sharing.alone(name) and not isinstance(placement.spec.granularity, PerTensor):
            other = next(other for other in sharing.members(name) if other != name)
            declined.append(f"{name}: it shares more than one scale with '{other}'")
        elif sharing.leader(name) == name:
            own.append(placement)
    return own, declined


def searchable_weights(state: State) -> tuple[Sharing, list[Placement], list[str]]:
    """The weights whose scales may be chosen, who shares them, and a line for each other one with its reason."""
    placements, declined = quantized_weights(state)
    sharing = Sharing(state.plan)
    own, others = with_own_scale(sharing, placements)
    return sharing, own, [*declined, *others]


def shared_values(graph: Graph, sharing: Sharing, tensor: str) -> np.ndarray:
    """The values of a weight in float32; where others share its one scale, all their values in a row."""
    arrays = [graph.values(name).astype(np.float32) for name in sharing.members(tensor)]
    return arrays[0] if len(arrays) == 1 else np.concatenate([array.ravel() for array in arrays])


def put_shared(table: QParamsTable, sharing: Sharing, tensor: str, qparams: QParams, origin: str) -> None:
    """Give a weight, and those that share its scale, other parameters."""
    for name in sharing.members(tensor):
        table.put(name, qparams, origin if name == tensor else f"tied to {tensor}")
