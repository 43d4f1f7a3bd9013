"""Observers: pure functions from what was seen of a tensor (a statistic) to the range that is worth representing.

A statistic is collected once; every observer and every number format can then be tried on it without another pass
over the data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np

from onnxq.errors import UnsupportedError
from onnxq.numerics.ranges import qparams_from_range
from onnxq.observers.statistics import STATISTICS, HistogramStatistic, RangeStatistic, StatisticKind
from onnxq.registry import Registry
from onnxq.types.granularity import PerBlock, PerChannel
from onnxq.types.qparams import QParams
from onnxq.types.spec import QuantSpec

Ranges = dict[str, tuple[np.ndarray, np.ndarray]]
"""Tensor -> low and high end."""


@dataclass(frozen=True)
class Observer(ABC):
    """One method with its parameters, which are the fields of the subclass (numbers with defaults).

    `statistic` names what it needs to see. Every statistic holds the exact minimum and maximum too, so an observer
    that needs only a range works on any of them.
    """

    name: ClassVar[str]
    statistic: ClassVar[StatisticKind]
    collects_for_format: ClassVar[bool] = False
    """Whether ranges of single samples are found while collecting, so that `new_statistic` needs the spec."""

    def new_statistic(self, axis: int | None = None, spec: QuantSpec | None = None) -> RangeStatistic:
        """An empty statistic of the kind this observer needs, per tensor or per channel along `axis`."""
        return STATISTICS[self.statistic](axis)

    def statistic_key(self, axis: int | None, spec: QuantSpec) -> tuple[str, ...]:
        """Equal for observers and formats that one statistic of a tensor can serve."""
        own = str(self) if self.statistic in ("ema", "votes") else ""
        return self.statistic, str(axis), own, str(spec) if self.collects_for_format else ""

    def range(self, statistic: RangeStatistic, spec: QuantSpec, *, tensor: str = "") -> tuple[np.ndarray, np.ndarray]:
        """Low and high end to represent, float64: one number, or one per channel of a per-channel statistic.

        `tensor` is only used to name the tensor in an error.
        """
        self.check(statistic, tensor)
        if not spec.has_scale:
            # fp16, bf16 and bfp16 have no scale to choose.
            low, high = statistic.minimum, statistic.maximum
        else:
            low, high = self.rows(statistic, spec)
        shape = () if statistic.axis is None else (statistic.rows,)
        return np.reshape(low, shape).astype(np.float64), np.reshape(high, shape).astype(np.float64)

    def ranges(self, statistics: Mapping[str, RangeStatistic], spec: QuantSpec) -> Ranges:
        """Tensor -> what `range` says; an observer may take many tensors at once, of which none sees the others."""
        return {tensor: self.range(statistic, spec, tensor=tensor) for tensor, statistic in statistics.items()}

    def check(self, statistic: RangeStatistic, tensor: str = "") -> None:
        """Refuse a statistic without values, or of another kind than is needed."""
        statistic.check(tensor)
        if self.statistic not in ("range", statistic.kind):
            raise UnsupportedError(
                f"observer '{self.name}' needs a {self.statistic} statistic, but a {statistic.kind} statistic was "
                f"collected{_of(tensor)}: collect it again for this observer, or use minmax"
            )

    @abstractmethod
    def rows(self, statistic: RangeStatistic, spec: QuantSpec) -> tuple[np.ndarray, np.ndarray]:
        """Low and high end of every row of a statistic that has values in each."""

    def __str__(self) -> str:
        """The shortest text that `make_observer` turns into this observer again."""
        changed = [f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if getattr(self, f.name) != f.default]
        return f"{self.name}:{','.join(changed)}" if changed else self.name


OBSERVERS: Registry[type[Observer]] = Registry("observer", "onnxq.observers", "onnxq.targets")
"""All observers by name; `@OBSERVERS.register("name")` adds one."""


def qparams(observer: Observer, statistic: RangeStatistic, spec: QuantSpec, *, tensor: str = "") -> QParams:
    """Scale and zero point of `spec` for the range that `observer` takes from `statistic`."""
    if isinstance(spec.scale_granularity, PerBlock):
        raise UnsupportedError(
            f"statistics are per tensor or per channel, not {spec.granularity}{_of(tensor)}: block-wise formats are "
            "for constants (weights)"
        )
    if isinstance(spec.granularity, PerChannel) != (statistic.axis is not None):
        collected = "per tensor" if statistic.axis is None else f"per channel (axis {statistic.axis})"
        raise UnsupportedError(
            f"the format is {spec.granularity} but the statistic was collected {collected}{_of(tensor)}: collect it "
            "with the axis of the format"
        )
    low, high = observer.range(statistic, spec, tensor=tensor)
    return qparams_from_range(low, high, spec)


def histogram_of(statistic: RangeStatistic) -> HistogramStatistic:
    """The statistic as the histogram that `Observer.range` has made sure of."""
    assert isinstance(statistic, HistogramStatistic)
    return statistic


def outer_range(statistic: RangeStatistic) -> tuple[np.ndarray, np.ndarray]:
    """Minimum and maximum of each row widened to zero, which every range includes: what clipping starts from."""
    return np.minimum(statistic.minimum.astype(np.float64), 0.0), np.maximum(statistic.maximum.astype(np.float64), 0.0)


def saturates_negative(spec: QuantSpec) -> bool:
    """Whether the format has no negative numbers, so that only the positive side of the data decides."""
    return spec.symmetric and spec.ends[0] == 0


def _of(tensor: str) -> str:
    return f" of tensor '{tensor}'" if tensor else ""
