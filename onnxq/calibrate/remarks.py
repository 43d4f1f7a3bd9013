"""What the user should know about the calibration data itself: too little of it, or one sample that decides alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnxq.calibrate.gather import Gathered
from onnxq.observers import RangeStatistic
from onnxq.types import Placement

FEW_SAMPLES = 16
"""Below this, ranges of real data still grow noticeably with every further sample."""

ENOUGH_TO_COMPARE = 8
"""With fewer samples than this, one that stands out says little."""

STANDS_OUT = 2.0
"""How many times the next sample's largest magnitude makes a sample an outlier."""


def nonfinite_warnings(gathered: Gathered, leaders: Sequence[Placement]) -> Iterator[str]:
    """A line for each observed tensor that held NaN or infinity."""
    for tensor, statistic in _observed(gathered, leaders):
        if statistic.nonfinite:
            many = "value" if statistic.nonfinite == 1 else "values"
            yield (
                f"tensor '{tensor}': {statistic.nonfinite} NaN/inf {many}, first in sample "
                f"{statistic.first_nonfinite}; left out of its range"
            )


def data_remarks(gathered: Gathered, leaders: Sequence[Placement]) -> Iterator[str]:
    """Notes about the samples for the report."""
    if leaders and gathered.samples < FEW_SAMPLES:
        many = "sample" if gathered.samples == 1 else "samples"
        yield (
            f"calibrated on {gathered.samples} {many}: ranges may be too narrow for other data; "
            "give some dozens to hundreds of typical samples"
        )
    if gathered.samples >= ENOUGH_TO_COMPARE:
        yield from _lonely_samples(gathered, leaders)


def _lonely_samples(gathered: Gathered, leaders: Sequence[Placement]) -> Iterator[str]:
    """One line for each sample that alone sets the range of some tensors."""
    by_sample: dict[int, list[tuple[float, str, float, float]]] = {}
    for tensor, statistic in _observed(gathered, leaders):
        if len(statistic.peaks) < 2:
            continue
        (largest, sample), (second, _) = statistic.peaks
        if second > 0 and largest > STANDS_OUT * second:
            by_sample.setdefault(sample, []).append((largest / second, tensor, largest, second))
    for sample, found in sorted(by_sample.items()):
        _, tensor, largest, second = max(found)
        rest = f" and of {len(found) - 1} more" if len(found) > 1 else ""
        yield (
            f"sample {sample} alone sets the range of tensor '{tensor}'{rest} ({largest:.4g}, the next sample has "
            f"{second:.4g}): check that sample, or use an observer that clips, such as percentile or mse"
        )


def _observed(gathered: Gathered, leaders: Sequence[Placement]) -> Iterator[tuple[str, RangeStatistic]]:
    """Each tensor that sets a range, with one of its statistics: all of them hold what is asked here."""
    for tensor in dict.fromkeys(tensor for placement in leaders for tensor in placement.observe):
        statistic = next(iter(gathered.statistics.get(tensor, {}).values()), None)
        if statistic is not None:
            yield tensor, statistic
