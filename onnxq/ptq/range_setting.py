"""Ranges of activations found by another observer than the target's, where nobody has chosen one.

`mse` is the range with the least squared error of the histogram's values, min over [a, b] of |x - Q(x; a, b)|^2;
`percentile` leaves out the rarest ones.
Both clip values that min-max would keep, at the price of coarser steps for all others: which is better depends on the
model, so each is tried (Nagel et al. 2021, "A White Paper on Neural Network Quantization", section 3.1).
"""

from __future__ import annotations

from dataclasses import replace

from onnxq.calibrate import activation_leaders, gather
from onnxq.calibrate.activations import activation_ranges
from onnxq.observers import make_observer
from onnxq.ptq.method import Improved, State, Task, improvement
from onnxq.types import Placement


@improvement(
    "range_setting",
    "ranges of activations by another observer, where none was asked for",
    "Nagel et al. 2021, A White Paper on Neural Network Quantization",
    {"observer": "mse"},
    check=lambda arguments: make_observer(str(arguments["observer"])),
    aliases=("ranges",),
)
def range_setting(state: State, task: Task, observer: str = "mse") -> Improved:
    """Find the ranges anew; an observer that somebody has set, and ranges known without data, stay as they are."""
    free = [placement for placement in activation_leaders(state.plan) if _is_free(placement, observer)]
    if not free:
        return Improved(state, declined=("every observer was chosen by the configuration, or is this one already",))
    plan = replace(
        state.plan,
        placements={
            **state.plan.placements,
            **{placement.tensor: replace(placement, observer=observer) for placement in free},
        },
    )
    leaders = [plan[placement.tensor] for placement in free]
    result = replace(state.with_own_parameters(), plan=plan)
    kept = None if task.statistics is None else task.statistics.on_all(state.graph, leaders)
    gathered = kept or gather(state.graph, leaders, task.samples.dataset, engine=task.engine)
    activation_ranges(state.graph, leaders, gathered, result.qparams)
    lines = [
        f"tensor '{p.tensor}': scale {_scale(state, p)} -> {_scale(result, p)}"
        for p in leaders
        if state.qparams[p.tensor] != result.qparams[p.tensor]
    ]
    return Improved(result, changed=tuple(lines), follows_plan=True) if lines else Improved(state)


def _is_free(placement: Placement, observer: str) -> bool:
    chosen = any(field == "observer" for field, _ in placement.set_by)
    return not chosen and placement.observer != observer and placement.observer == "minmax" and placement.spec.has_scale


def _scale(state: State, placement: Placement) -> str:
    return f"{float(state.qparams[placement.tensor].scale.max()):.4g}"
