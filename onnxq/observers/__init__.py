"""From the values of a tensor to the range that is worth representing: statistics, and observers over them."""

from onnxq.observers.base import OBSERVERS, Observer, make_observer, qparams
from onnxq.observers.constant import observe_constant
from onnxq.observers.statistics import (
    EmaStatistic,
    HistogramStatistic,
    RangeStatistic,
    StatisticKind,
    statistic_from_arrays,
)

__all__ = [
    "OBSERVERS",
    "EmaStatistic",
    "HistogramStatistic",
    "Observer",
    "RangeStatistic",
    "StatisticKind",
    "make_observer",
    "observe_constant",
    "qparams",
    "statistic_from_arrays",
]
