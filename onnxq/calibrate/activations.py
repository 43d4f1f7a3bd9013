"""Ranges of activations: one statistic for each observed tensor, one range for each group that shares a scale."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from onnxq.calibrate.precision import fitted
from onnxq.errors import UnsupportedError
from onnxq.graph import Graph
from onnxq.numerics import qparams_from_range
from onnxq.observers import Observer, RangeStatistic, make_observer
from onnxq.observers import qparams as observed_qparams
from onnxq.runtime.feeds import Feed
from onnxq.runtime.tap import CollectReport, Progress, collect
from onnxq.types import PerBlock, PerChannel, Placement, QParams, QParamsTable

UNSEEN = "no calibration sample reached it"


@dataclass(frozen=True)
class _Group:
    """A leader with the statistics of the tensors that set its range."""

    placement: Placement
    observer: Observer
    members: dict[str, RangeStatistic]


MASK_MAGNITUDE = 1e30
"""Values this large are stand-ins for infinity, not numbers that a network computes with."""


@dataclass(frozen=True)
class ActivationReport:
    """What was seen; `unseen` maps leaders without any value to the reason."""

    collected: CollectReport
    unseen: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def calibrate_activations(
    graph: Graph,
    leaders: Sequence[Placement],
    dataset: Iterable[Feed],
    table: QParamsTable,
    *,
    memory_limit_bytes: int | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> ActivationReport:
    """Run the float graph over the data and fill in the parameters of each leader."""
    groups, statistics = _prepare(leaders)

    collected = collect(
        graph,
        dataset,
        {tensor: list(kinds.values()) for tensor, kinds in statistics.items()},
        threads=threads,
        memory_limit_bytes=memory_limit_bytes,
        progress=progress,
    )
    warnings = list(collected.warnings)
    unseen: dict[str, str] = {}
    for group in groups:
        name = group.placement.tensor
        seen = {member: statistic for member, statistic in group.members.items() if _has_values(statistic)}
        if not seen:
            unseen[name] = _why_unseen(group, collected)
            continue
        largest = max(_magnitude(statistic) for statistic in seen.values())
        if largest >= MASK_MAGNITUDE:
            unseen[name] = f"it holds mask values (up to {largest:.3g}), which would ruin the range"
            continue
        table.put(name, fitted(graph, name, _qparams(group, seen)), group.placement.observer)
        warnings.extend(_remarks(name, seen))
    return ActivationReport(collected, unseen, tuple(warnings))


def _prepare(leaders: Sequence[Placement]) -> tuple[list[_Group], dict[str, dict[tuple[str, ...], RangeStatistic]]]:
    """Groups, and tensor -> kind of statistic -> statistic; groups that look at one tensor alike share a statistic."""
    statistics: dict[str, dict[tuple[str, ...], RangeStatistic]] = {}
    groups = []
    observers: dict[str, Observer] = {}
    for placement in leaders:
        if placement.observer not in observers:
            observers[placement.observer] = make_observer(placement.observer)
        observer = observers[placement.observer]
        axis = _axis(placement)
        # Moving averages have parameters of their own; the other statistics serve every observer of their kind.
        kind = (observer.statistic, str(axis), str(observer) if observer.statistic == "ema" else "")
        members = {}
        for tensor in placement.observe:
            kinds = statistics.setdefault(tensor, {})
            if kind not in kinds:
                kinds[kind] = observer.new_statistic(axis)
            members[tensor] = kinds[kind]
        groups.append(_Group(placement, observer, members))
    return groups, statistics


def _axis(placement: Placement) -> int | None:
    granularity = placement.spec.granularity
    if isinstance(granularity, PerBlock):
        raise UnsupportedError(f"'{placement.tensor}' is computed at run time and cannot be quantized {granularity}")
    return granularity.axis if isinstance(granularity, PerChannel) else None


def _has_values(statistic: RangeStatistic) -> bool:
    """Whether there is a finite value in every channel."""
    return statistic.rows > 0 and bool((statistic.count > 0).all())


def _magnitude(statistic: RangeStatistic) -> float:
    return max(-float(statistic.minimum.min()), float(statistic.maximum.max()))


def _why_unseen(group: _Group, collected: CollectReport) -> str:
    for member, statistic in group.members.items():
        if member in collected.unreachable:
            return collected.unreachable[member]
        if statistic.nonfinite:
            return f"all its values are NaN or infinite, first in sample {statistic.first_nonfinite}"
    return UNSEEN


def _qparams(group: _Group, seen: dict[str, RangeStatistic]) -> QParams:
    spec, observer, name = group.placement.spec, group.observer, group.placement.tensor
    if observer.statistic == "ema":
        # Averages of several tensors do not mix: the range covers each tensor's own.
        ranges = [observer.range(statistic, spec, tensor=member) for member, statistic in seen.items()]
        low = np.min([low for low, _ in ranges], axis=0)
        high = np.max([high for _, high in ranges], axis=0)
        return qparams_from_range(low, high, spec)
    if len(seen) == 1:
        ((member, statistic),) = seen.items()
        return observed_qparams(observer, statistic, spec, tensor=member)
    whole = observer.new_statistic(_axis(group.placement))
    for statistic in seen.values():
        whole.merge(statistic)
    return observed_qparams(observer, whole, spec, tensor=name)


def _remarks(name: str, seen: dict[str, RangeStatistic]) -> Iterable[str]:
    """A tensor that never changes is either dead or was calibrated on data that does not exercise it."""
    low = min(float(statistic.minimum.min()) for statistic in seen.values())
    high = max(float(statistic.maximum.max()) for statistic in seen.values())
    if low == high == 0.0:
        yield f"tensor '{name}': all values are zero in the calibration data"
    elif low == high:
        yield f"tensor '{name}': all values are {low:g} in the calibration data"
