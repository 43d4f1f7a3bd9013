"""calibrate: a plan and data -> scale and zero point of every tensor in the plan."""

from __future__ import annotations

import time
from collections.abc import Iterable

from onnxq.calibrate.activations import ActivationReport, calibrate_activations
from onnxq.calibrate.biases import derive_biases, float_biases, widen_weights
from onnxq.calibrate.constants import calibrate_constants
from onnxq.calibrate.drop import drop_unseen
from onnxq.calibrate.report import Calibration, CalibrationReport
from onnxq.errors import DataError, SpecError
from onnxq.graph import Graph, collector_paused
from onnxq.runtime.feeds import Feed
from onnxq.runtime.tap import CollectReport, Progress
from onnxq.types import Placement, QParamsTable, QuantPlan


def calibrate(
    graph: Graph,
    plan: QuantPlan,
    dataset: Iterable[Feed] | None,
    *,
    memory_limit_bytes: int | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Calibration:
    """Parameters for every placement, from constants and from runs of the float graph over `dataset`.

    `dataset` can be None when the plan observes no activations. Tensors that no sample reached are taken out of the
    returned plan; the report names them. `memory_limit_bytes` bounds what one run may hold of observed tensors.
    """
    started = time.monotonic()
    table = QParamsTable()
    _check_ties(plan)
    own = [placement for placement in plan if placement.tie is None and placement.derive is None]
    with collector_paused():
        weights = calibrate_constants(graph, [placement for placement in own if not placement.observe], table)

    leaders = [placement for placement in own if placement.observe]
    seen = ActivationReport(CollectReport(0, 0.0, 0))
    if leaders:
        if dataset is None:
            raise DataError(
                f"the plan observes {len(leaders)} activations, so calibration needs data: give samples, or place "
                "quantizers on weights only"
            )
        seen = calibrate_activations(
            graph, leaders, dataset, table, memory_limit_bytes=memory_limit_bytes, threads=threads, progress=progress
        )
    kept = drop_unseen(graph, plan, seen.unseen)

    biases = [placement for placement in kept if placement.derive is not None]
    with collector_paused():
        widened = widen_weights(graph, kept, [*biases, *float_biases(graph, kept)], table)
        for placement in kept:
            if placement.tie is not None:
                table.put(placement.tensor, table[placement.tie], f"tied to {placement.tie}")
        derive_biases(graph, kept, biases, table)

    warnings = [f"tensor '{name}' stays float: {reason}" for name, reason in seen.unseen.items()]
    notes = [
        f"weight '{name}': scale enlarged up to {factor:g} times so that its bias fits into int32"
        for name, factor in widened.items()
    ]
    report = CalibrationReport(
        samples=seen.collected.samples,
        seconds=time.monotonic() - started,
        passes=seen.collected.passes,
        weights=weights,
        activations=len(leaders) - len(seen.unseen),
        biases=len(biases),
        widened=widened,
        unseen=dict(seen.unseen),
        warnings=(*seen.warnings, *warnings),
        notes=tuple(notes),
    )
    return Calibration(_in_plan_order(kept, table), kept, report)


def _check_ties(plan: QuantPlan) -> None:
    """A shared scale needs a leader of its own and one number format."""
    for placement in plan:
        if placement.tie is None:
            continue
        leader: Placement = plan[placement.tie]
        if leader.tie is not None:
            raise SpecError(
                f"'{placement.tensor}' is tied to '{leader.tensor}', which is itself tied to '{leader.tie}': tie both "
                "to the same leader"
            )
        if leader.derive is not None:
            raise SpecError(f"'{placement.tensor}' is tied to the bias '{leader.tensor}', whose scale is derived")
        if leader.spec != placement.spec:
            raise SpecError(
                f"'{placement.tensor}' ({placement.spec}) is tied to '{leader.tensor}' ({leader.spec}): tensors that "
                "share a scale need one number format"
            )


def _in_plan_order(plan: QuantPlan, table: QParamsTable) -> QParamsTable:
    """The entries that the plan still has, in its order, so that two tables compare line by line."""
    ordered = QParamsTable()
    for name in plan.placements:
        ordered.put(name, table[name], table.provenance[name])
    return ordered
