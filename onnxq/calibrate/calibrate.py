"""calibrate: a plan and data -> scale and zero point of every tensor in the plan."""

from __future__ import annotations

import time
from typing import Any

from onnxq.calibrate.activations import activation_ranges
from onnxq.calibrate.biases import Widened, derive_biases, float_biases, widen_weights
from onnxq.calibrate.constants import calibrate_constants
from onnxq.calibrate.drop import drop_unseen
from onnxq.calibrate.gather import Gathered, activation_leaders, gather
from onnxq.calibrate.remarks import data_remarks, nonfinite_warnings, widened_notes
from onnxq.calibrate.report import Calibration, CalibrationReport
from onnxq.errors import DataError, SpecError
from onnxq.graph import Graph, collector_paused
from onnxq.moved import renamed_arguments
from onnxq.runtime import Dataset, input_infos, open_dataset
from onnxq.runtime.collect import Engine, Progress
from onnxq.runtime.pinned import pinned_beyond
from onnxq.types import Placement, QParamsTable, QuantPlan
from onnxq.types.note import Note


@renamed_arguments(dataset="data")
def calibrate(
    graph: Graph,
    plan: QuantPlan,
    data: Any = None,
    *,
    statistics: Gathered | None = None,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> Calibration:
    """Parameters for every placement, from constants and from runs of the float graph over `data`.

    `data` is what `onnxq.quantize` takes (docs/data.md). `statistics` that were gathered before take the place of the
    runs; without them `data` can be None only when the plan observes no activations. Tensors that no sample reached
    are taken out of the returned plan; the report names them. `engine` says how many samples to run at a time, and in
    how much memory.
    """
    started = time.monotonic()
    table = QParamsTable()
    _check_ties(plan)
    constants = [placement for placement in plan if not (placement.tie or placement.derive or placement.observe)]
    with collector_paused(), graph.unchanging():
        weights = calibrate_constants(graph, constants, table, shared_constants(graph, plan))

    leaders = activation_leaders(plan)
    if leaders and statistics is None:
        if data is None:
            raise DataError(
                f"the plan observes {len(leaders)} activations, so calibration needs data: give samples, or place "
                "quantizers on weights only"
            )
        dataset = data if isinstance(data, Dataset) else open_dataset(data, input_infos(graph))
        statistics = gather(graph, leaders, dataset, engine=engine, progress=progress)
    gathered = statistics or Gathered()
    beyond = pinned_beyond(graph, [tensor for placement in leaders for tensor in placement.observe])
    seen = activation_ranges(graph, leaders, gathered, table)
    kept = drop_unseen(graph, plan, seen.unseen)

    with collector_paused(), graph.unchanging():
        widened = complete(graph, kept, table)

    warnings = [*nonfinite_warnings(graph, gathered, leaders), *seen.warnings]
    warnings += [Note("unseen", f"tensor '{name}' stays float: {reason}") for name, reason in seen.unseen.items()]
    notes = [*gathered.notes, *data_remarks(gathered, leaders)]
    if gathered.statistics and gathered.beyond != beyond:
        notes.append(
            "the statistics were collected with other tensors inside of If, Loop or Scan bodies than this plan "
            "observes: a run for this plan may find other last bits"
        )
    notes += widened_notes(graph, widened)
    report = CalibrationReport(
        samples=gathered.samples,
        seconds=time.monotonic() - started,
        passes=gathered.passes,
        weights=weights,
        activations=len(leaders) - len(seen.unseen),
        biases=sum(placement.derive is not None for placement in kept),
        widened={name: found.factor for name, found in widened.items()},
        unseen=dict(seen.unseen),
        warnings=tuple(warnings),
        notes=tuple(notes),
    )
    return Calibration(_in_plan_order(kept, table), kept, report)


def complete(graph: Graph, plan: QuantPlan, table: QParamsTable) -> dict[str, Widened]:
    """Fill in what follows from the parameters of others: tied tensors, and biases, for which weights may be widened.

    Returns the widened weights.
    """
    biases = [placement for placement in plan if placement.derive is not None]
    widened = widen_weights(graph, plan, [*biases, *float_biases(graph, plan)], table)
    for placement in plan:
        if placement.tie is not None:
            table.put(placement.tensor, table[placement.tie], f"tied to {placement.tie}")
    derive_biases(graph, plan, biases, table)
    return widened


def shared_constants(graph: Graph, plan: QuantPlan) -> dict[str, list[str]]:
    """Leader -> the other constants that use its parameters."""
    found: dict[str, list[str]] = {}
    for placement in plan:
        if placement.tie is not None and graph.is_constant(placement.tensor) and graph.is_constant(placement.tie):
            found.setdefault(placement.tie, []).append(placement.tensor)
    return found


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
        ordered.put(name, table[name], *table.origins[name])
    return ordered
