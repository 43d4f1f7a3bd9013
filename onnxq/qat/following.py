"""Which fake-quantizers follow the range of what they see, where their kind allows it.

Those do not whose range another observer than a min-max has found, nor weights whose scale was changed after their
range was found: enlarged for a bias, or by a refinement of the target, such as the six bits of ncnn's Winograd kernels.
Following would undo what was chosen, and the net would be trained with numbers that its file cannot have.
"""

from __future__ import annotations

from onnxq.calibrate.calibrate import shared_constants
from onnxq.calibrate.constants import calibrate_constants
from onnxq.graph import Graph, collector_paused
from onnxq.types import QParamsTable, QuantPlan

FOLLOWING = ("minmax", "ema_minmax")
"""Observers whose range training goes on to follow."""


def following(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> frozenset[str]:
    """The leaders of a plan, as it is carried out, whose scale is that of their range."""
    candidates = [p for p in plan if p.tie is None and p.derive is None and p.observer in FOLLOWING]
    constants = [p for p in candidates if graph.is_constant(p.tensor)]
    alone = QParamsTable()
    with collector_paused():
        calibrate_constants(graph, constants, alone, shared_constants(graph, plan))
    changed = {p.tensor for p in constants if alone[p.tensor] != qparams[p.tensor]}
    return frozenset(p.tensor for p in candidates if p.tensor not in changed)
