"""Scales and zero points of two runs, those furthest apart first."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from onnxq.json_file import JsonObject
from onnxq.types import QParams, QParamsTable, QuantPlan


@dataclass(frozen=True)
class ParameterChange:
    """A tensor whose scales or zero points differ.

    ratio    after / before of the scale that differs most
    channel  which one of several scales that is, flat; None where a tensor has one
    scales, zero_points   of both runs, at that place
    others   how many scales or zero points of the tensor differ
    origins  what has found the parameters in both runs
    """

    tensor: str
    ratio: float
    channel: int | None
    scales: tuple[float, float]
    zero_points: tuple[int, int]
    differing: int
    count: int
    origins: tuple[str, str]

    @property
    def distance(self) -> tuple[float, int]:
        return (abs(math.log(self.ratio)), abs(self.zero_points[1] - self.zero_points[0]))

    def to_json(self) -> JsonObject:
        return {
            "tensor": self.tensor,
            "ratio": self.ratio,
            **({} if self.channel is None else {"channel": self.channel}),
            "scale": list(self.scales),
            "zero_point": list(self.zero_points),
            "differing": self.differing,
            "scales": self.count,
            "from": list(self.origins),
        }


@dataclass(frozen=True)
class ParameterDiff:
    """Tensors with scales of their own, in both runs.

    incomparable  tensors whose format or granularity differs, so that their scales do not mean the same
    integers      tensors whose stored integers differ: those that a method has fixed
    """

    changes: tuple[ParameterChange, ...]
    equal: int
    incomparable: tuple[str, ...]
    integers: tuple[str, ...]

    def to_json(self) -> JsonObject:
        return {
            "changed": [change.to_json() for change in self.changes],
            "equal": self.equal,
            "incomparable": list(self.incomparable),
            "integer_weights": list(self.integers),
        }


def diff_parameters(before: QParamsTable, after: QParamsTable, plans: tuple[QuantPlan, QuantPlan]) -> ParameterDiff:
    """Of tensors that both runs quantize; what follows from the scale of another tensor in both is left out."""
    changes, incomparable, equal = [], [], 0
    for tensor, mine in before.entries.items():
        theirs = after.entries.get(tensor)
        if theirs is None or all(_follows(plan, tensor) for plan in plans):
            continue
        if mine.spec != theirs.spec or mine.scale.shape != theirs.scale.shape:
            incomparable.append(tensor)
        elif mine == theirs:
            equal += 1
        else:
            changes.append(_change(tensor, mine, theirs, (before.origin(tensor), after.origin(tensor))))
    changes.sort(key=lambda change: change.distance, reverse=True)
    integers = [
        tensor
        for tensor in dict.fromkeys([*before.integer_weights, *after.integer_weights])
        if not _equal(before.integer_weights.get(tensor), after.integer_weights.get(tensor))
    ]
    return ParameterDiff(tuple(changes), equal, tuple(incomparable), tuple(integers))


def _follows(plan: QuantPlan, tensor: str) -> bool:
    placement = plan.placements.get(tensor)
    return placement is not None and (placement.tie is not None or placement.derive is not None)


def _equal(one: np.ndarray | None, other: np.ndarray | None) -> bool:
    return one is not None and other is not None and np.array_equal(one, other)


def _change(tensor: str, before: QParams, after: QParams, origins: tuple[str, str]) -> ParameterChange:
    first, second = (held.scale.astype(np.float64).ravel() for held in (before, after))
    zeros = [np.asarray(held.zero_point, np.int64).ravel() for held in (before, after)]
    apart = np.abs(np.log(second / first))
    moved = np.abs(zeros[1] - zeros[0])
    worst = int(np.lexsort((moved, apart))[-1])
    return ParameterChange(
        tensor,
        float(second[worst] / first[worst]),
        None if first.size == 1 else worst,
        (_float32(first[worst]), _float32(second[worst])),
        (int(zeros[0][worst]), int(zeros[1][worst])),
        int(((apart > 0) | (moved > 0)).sum()),
        int(first.size),
        origins,
    )


def _float32(value: float) -> float:
    """With the digits that identify a float32."""
    return float(str(np.float32(value)))
