"""What choosing roundings could gain: the score of a model as if nothing had been lost where they are chosen.

Weights and biases are float, and so are activations of fewer than SAFE_BITS, whose ranges are fitted together with
weights. With 8 bits for both, most of the noise is that of activations, which no rounding of weights takes away: on
eleven such models the methods that learn roundings gained nothing in the median, and took three quarters of the time.
"""

from __future__ import annotations

from dataclasses import replace

from onnxq.ptq.method import State
from onnxq.types import Placement

LEAST_ROOM_DB = 1.0
"""What float weights have to gain, for slow roundings to be worth their time."""

SAFE_BITS = 7


def without_roundings(state: State) -> State:
    """The state without the quantizers that a rounding, or a range fitted with it, could do better."""
    plan = state.plan
    left = {item.tensor: item for item in plan if not _could_do_better(item)}
    leaders = {plan.leader(name) for name in left}
    kept = {item.tensor: item for item in plan if item.tensor in left or item.tensor in leaders}
    return replace(state, plan=replace(plan, placements=kept))


def _could_do_better(placement: Placement) -> bool:
    if placement.role in ("weight", "bias"):
        return True
    return placement.role in ("activation", "output") and placement.spec.bits < SAFE_BITS
