"""PerSampleStatistic: the base of statistics that remember what an observer says of each sample on its own."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from onnxq.errors import UnsupportedError
from onnxq.json_file import parse_json
from onnxq.observers.statistics.range import RangeStatistic
from onnxq.types.granularity import PerTensor, resolve_axis
from onnxq.types.spec import QuantSpec


class SampleObserver(Protocol):
    """What finds the range of a sample: an observer. Its package is above this one, so only its shape is known here."""

    def new_statistic(self, axis: int | None = None, spec: QuantSpec | None = None) -> RangeStatistic: ...

    def range(
        self, statistic: RangeStatistic, spec: QuantSpec, *, tensor: str = ""
    ) -> tuple[np.ndarray, np.ndarray]: ...


@dataclass(frozen=True)
class SampleRange:
    """The range of one sample, and what was seen of it; rows without a finite value have a range of no meaning."""

    seen: RangeStatistic
    low: np.ndarray
    high: np.ndarray


class PerSampleStatistic(RangeStatistic, ABC):
    """Takes the range that `inner` finds for each sample in the number format `spec`, plus all that RangeStatistic has.

    A batch is taken apart into its samples, so the batch size does not matter. Along a channel axis 0 there are no
    samples to tell apart, and an array counts as one.

    inner   None for the observer of the class's `default_inner`
    spec    None where the inner observer does not look at the format
    """

    default_inner: ClassVar[str] = "minmax"

    def __init__(
        self, axis: int | None = None, inner: SampleObserver | None = None, spec: QuantSpec | None = None
    ) -> None:
        super().__init__(axis)
        self.inner = _observer(self.default_inner) if inner is None else inner
        self.spec = spec

    def look(self, array: np.ndarray, sample: int = 0, *, batch: int = 1) -> list[SampleRange] | None:
        values = np.asarray(array)
        if values.size == 0:
            return None
        axis = None if self.axis is None else resolve_axis(self.axis, values.ndim)
        if batch > 1 and axis != 0 and values.ndim > 0 and values.shape[0] == batch:
            return [self._look_at_one(values[i : i + 1], sample + i, axis) for i in range(batch)]
        return [self._look_at_one(values, sample, axis)]

    def _look_at_one(self, values: np.ndarray, sample: int, axis: int | None) -> SampleRange:
        statistic = self._inner_statistic(values, sample)
        seen = RangeStatistic(self.axis)
        seen._absorb(statistic)
        empty = seen.count == 0
        if empty.any():
            # Rows of nothing but NaN and infinity have no range; zeros stand in, for the sake of the other rows.
            values = np.array(values)
            if axis is None:
                values[...] = 0
            else:
                np.moveaxis(values, axis, 0)[empty] = 0
            statistic = self._inner_statistic(values, sample)
        low, high = self.inner.range(statistic, self.spec or QuantSpec())
        return SampleRange(seen, low.reshape(-1), high.reshape(-1))

    def _inner_statistic(self, values: np.ndarray, sample: int) -> RangeStatistic:
        statistic = self.inner.new_statistic(self.axis, self.spec)
        statistic.update(values, sample)
        return statistic

    def add(self, partial: list[SampleRange]) -> None:
        for one in partial:
            self._absorb(one.seen)
            self._take(one.low, one.high, one.seen.count > 0)

    @abstractmethod
    def _take(self, low: np.ndarray, high: np.ndarray, valid: np.ndarray) -> None:
        """Take in the range of one sample, in the rows where it is valid."""

    def merge(self, other: Self) -> None:
        self.check_settings(str(other.inner), other.spec)
        super().merge(other)

    def check_settings(self, inner: str, spec: QuantSpec | None) -> None:
        """Refuse to be read or extended with other settings than the samples were seen with."""
        if inner != str(self.inner):
            raise UnsupportedError(
                f"this {self.kind} statistic holds ranges of '{self.inner}', not of '{inner}': collect it again"
            )
        if self.spec is not None and spec is not None and _format(spec) != _format(self.spec):
            raise UnsupportedError(
                f"this {self.kind} statistic was collected for {self.spec}, not for {spec}: each range was found in "
                "that format, so collect it again"
            )

    def to_arrays(self) -> dict[str, np.ndarray]:
        spec = "" if self.spec is None else json.dumps(self.spec.to_json())
        return {**super().to_arrays(), "inner": np.array(str(self.inner)), "spec": np.array(spec)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        statistic = super().from_arrays(arrays)
        statistic.inner = _observer(str(arrays["inner"]))
        text = str(arrays["spec"])
        statistic.spec = QuantSpec.from_json(parse_json(text)) if text else None
        return statistic


def _observer(text: str) -> Any:
    # Observers are made of statistics; at this point both have been imported.
    from onnxq.observers.make import make_observer

    return make_observer(text)


def _format(spec: QuantSpec) -> QuantSpec:
    return spec.replace(granularity=PerTensor())
