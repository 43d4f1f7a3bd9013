"""A plan as it is carried out: quantizers that are only observed change no value, so nobody else needs to know them."""

from __future__ import annotations

from dataclasses import replace

from onnxq.types.plan import Placement, QuantPlan


def applied(plan: QuantPlan) -> QuantPlan:
    """The plan without the quantizers that are only observed, and without biases whose scale derives from one.

    Tensors that share a scale with one that is gone keep theirs: the first of them leads the group from there on. A
    plan in which nothing is only observed is returned as it is.
    """
    gone = {placement.tensor for placement in plan if placement.observe_only}
    if not gone:
        return plan
    placements: dict[str, Placement] = {}
    leaders: dict[str, str] = {}
    for placement in plan:
        if placement.tensor in gone or (placement.derive is not None and not gone.isdisjoint(placement.derive)):
            continue
        if placement.tie in gone:
            lost = plan[placement.tie]
            leader = leaders.setdefault(lost.tensor, placement.tensor)
            own = leader == placement.tensor
            placement = replace(placement, tie=None if own else leader, observe=lost.observe if own else ())
        placements[placement.tensor] = placement
    return replace(plan, placements=placements)
