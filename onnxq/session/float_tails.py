"""Calibration that looks at its own result: joins of unlike tensors are found, and placed anew with float tails.

Which tensors fit under one scale is not known before ranges are, so a plan is made twice where it has to be. What the
second plan observes was seen already, but for tensors that had no quantizer of their own in the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnxq.calibrate import Calibration, Gathered, activation_leaders, calibrate
from onnxq.calibrate.gather import with_observers
from onnxq.errors import UnsupportedError
from onnxq.place.unlike import refuse_without_float, unlike_joins
from onnxq.session.prepare import Prepared, make_plan
from onnxq.types import QuantPlan
from onnxq.types.unlike import UnlikeJoin

GatherAgain = Callable[[QuantPlan], Gathered]
"""What was seen of the tensors of another plan, those that were not observed before included."""


def calibrate_with_tails(
    prepared: Prepared, plan: QuantPlan, gathered: Gathered, gather_again: GatherAgain, *, strict: bool = False
) -> Calibration:
    """Parameters for a plan, or for the plan with float tails behind joins that one scale would ruin."""
    found = calibrate(prepared.graph, plan, statistics=gathered)
    joins = unlike_joins(prepared.graph, found.plan, found.qparams, gathered.range_of)
    changed = _with_tails(prepared, joins, strict=strict)
    if changed is None:
        return found
    changed.notes.extend(note for note in plan.notes if note not in changed.notes)
    if not _has_all(gathered, changed):
        gathered = gather_again(changed)
    return calibrate(prepared.graph, changed, statistics=gathered)


def _with_tails(prepared: Prepared, joins: Sequence[UnlikeJoin], *, strict: bool) -> QuantPlan | None:
    """The plan with float tails; None where there are none, or the user forces them into quantization."""
    while joins:
        plan = make_plan(prepared, strict=strict, unlike=joins)
        kept = [join for join in joins if join.node in plan.left_float]
        if len(kept) == len(joins):
            refuse_without_float(kept, prepared.graph, prepared.backend)
            return None if prepared.backend.integers_only else plan
        joins = kept
    return None


def tail_notes(plan: QuantPlan) -> list[str]:
    """A line for each join whose tail stays float."""
    return [_note(join) for join in plan.unlike]


def _note(join: UnlikeJoin) -> str:
    behind = len(join.tail) - 1
    rest = " stays" if not behind else f" and {behind} node{'s' if behind > 1 else ''} behind it stay"
    return f"{join}. It{rest} float, and its inputs have scales of their own"


def _has_all(gathered: Gathered, plan: QuantPlan) -> bool:
    try:
        for placement, observer in with_observers(activation_leaders(plan)):
            for tensor in placement.observe:
                gathered.find(tensor, observer, placement.spec)
    except UnsupportedError:
        return False
    return True
