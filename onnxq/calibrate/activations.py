"""Ranges of activations: from statistics of observed tensors to one range for each group that shares a scale."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from onnxq.calibrate.gather import Gathered, with_observers
from onnxq.calibrate.limits import limit_range, raise_scale
from onnxq.calibrate.precision import fitted
from onnxq.graph import Graph
from onnxq.numerics import qparams_from_range
from onnxq.observers import Observer, RangeStatistic, statistic_from_arrays
from onnxq.observers.base import Ranges
from onnxq.observers.positions import SearchingObserver
from onnxq.types import PerTensor, Placement, QParamsTable, QuantSpec
from onnxq.types.note import Note

UNSEEN = "no calibration sample reached it"

MASK_MAGNITUDE = 1e30
"""Values this large are stand-ins for infinity, not numbers that a network computes with."""


@dataclass(frozen=True)
class ActivationReport:
    """`unseen` maps leaders without any value to the reason."""

    unseen: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def activation_ranges(
    graph: Graph, leaders: Sequence[Placement], gathered: Gathered, table: QParamsTable
) -> ActivationReport:
    """Fill in the parameters of each leader from what was gathered of the tensors that set its range."""
    warnings: list[str] = []
    unseen: dict[str, str] = {}
    observed: list[tuple[Placement, Observer, dict[str, RangeStatistic]]] = []
    for placement, observer in with_observers(leaders):
        name = placement.tensor
        members = {tensor: gathered.find(tensor, observer, placement.spec) for tensor in placement.observe}
        seen = {tensor: statistic for tensor, statistic in members.items() if _has_values(statistic)}
        if not seen:
            unseen[name] = _why_unseen(members, gathered)
            continue
        largest = max(_magnitude(statistic) for statistic in seen.values())
        if largest >= MASK_MAGNITUDE:
            unseen[name] = f"it holds mask values (up to {largest:.3g}), which would ruin the range"
            continue
        observed.append((placement, observer, seen))
    found = _ranges_of_one(observed)
    for placement, observer, seen in observed:
        name = placement.tensor
        ends = found[name] if name in found else _range_of_several(placement, observer, seen)
        low, high, limited = limit_range(*ends, placement)
        qparams, raised = raise_scale(qparams_from_range(low, high, placement.spec), placement)
        table.put(name, fitted(graph, name, qparams), placement.observer, *limited, *raised)
        warnings.extend(_remarks(name, seen))
    return ActivationReport(unseen, tuple(warnings))


def _ranges_of_one(observed: Sequence[tuple[Placement, Observer, Mapping[str, RangeStatistic]]]) -> Ranges:
    """Leader -> the range, where one tensor sets it: equal observers and formats look at all of theirs together."""
    alike: dict[tuple[str, QuantSpec], tuple[Observer, dict[str, RangeStatistic], dict[str, str]]] = {}
    for placement, observer, seen in observed:
        if len(seen) == 1:
            ((member, statistic),) = seen.items()
            _, statistics, names = alike.setdefault((placement.observer, placement.spec), (observer, {}, {}))
            statistics[member], names[placement.tensor] = statistic, member
    found: Ranges = {}
    for (_, spec), (observer, statistics, names) in alike.items():
        ranges = observer.ranges(statistics, spec)
        found |= {name: ranges[member] for name, member in names.items()}
    return found


def _has_values(statistic: RangeStatistic) -> bool:
    """Whether there is a finite value in every channel."""
    return statistic.rows > 0 and bool((statistic.count > 0).all())


def _magnitude(statistic: RangeStatistic) -> float:
    return max(-float(statistic.minimum.min()), float(statistic.maximum.max()))


def _why_unseen(members: Mapping[str, RangeStatistic], gathered: Gathered) -> str:
    for member, statistic in members.items():
        if member in gathered.unreachable:
            return gathered.unreachable[member]
        if statistic.nonfinite:
            return f"all its values are NaN or infinite, first in sample {statistic.first_nonfinite}"
    return UNSEEN


def _range_of_several(
    placement: Placement, observer: Observer, seen: Mapping[str, RangeStatistic]
) -> tuple[np.ndarray, np.ndarray]:
    spec = placement.spec
    if next(iter(seen.values())).ordered:
        # Averages of several tensors do not mix: the range covers each tensor's own.
        ranges = [observer.range(statistic, spec, tensor=member) for member, statistic in seen.items()]
        return np.min([low for low, _ in ranges], axis=0), np.max([high for _, high in ranges], axis=0)
    if isinstance(observer, SearchingObserver) and spec.power_of_two and isinstance(spec.granularity, PerTensor):
        return observer.shared_range(list(seen.values()), spec)
    first, *others = seen.values()
    whole = statistic_from_arrays(first.to_arrays())
    for statistic in others:
        whole.merge(statistic)
    return observer.range(whole, spec, tensor=placement.tensor)


def _remarks(name: str, seen: Mapping[str, RangeStatistic]) -> Iterable[str]:
    """A tensor that never changes is either dead or was calibrated on data that does not exercise it."""
    low = min(float(statistic.minimum.min()) for statistic in seen.values())
    high = max(float(statistic.maximum.max()) for statistic in seen.values())
    if low == high == 0.0:
        yield Note("constant", f"tensor '{name}': all values are zero in the calibration data")
    elif low == high:
        yield Note("constant", f"tensor '{name}': all values are {low:g} in the calibration data")
