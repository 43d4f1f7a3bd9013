"""What is remembered of the values of a tensor: mergeable, savable, and of constant size in the number of samples."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from onnxq.errors import SpecError
from onnxq.observers.statistics.ema import EmaStatistic
from onnxq.observers.statistics.histogram import Bins, HistogramStatistic
from onnxq.observers.statistics.range import RangeStatistic, StatisticKind
from onnxq.observers.statistics.votes import VotesStatistic

__all__ = [
    "STATISTICS",
    "Bins",
    "EmaStatistic",
    "HistogramStatistic",
    "RangeStatistic",
    "StatisticKind",
    "VotesStatistic",
    "statistic_from_arrays",
]

STATISTICS: dict[str, type[RangeStatistic]] = {
    statistic.kind: statistic for statistic in (RangeStatistic, HistogramStatistic, EmaStatistic, VotesStatistic)
}


def statistic_from_arrays(arrays: Mapping[str, np.ndarray]) -> RangeStatistic:
    """Restore what `to_arrays` gave, whichever kind it was."""
    kind = str(arrays["kind"])
    if kind not in STATISTICS:
        raise SpecError(f"unknown statistic '{kind}'. Known: {', '.join(STATISTICS)}")
    return STATISTICS[kind].from_arrays(arrays)
