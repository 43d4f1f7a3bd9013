"""From the values of a tensor to the range that is worth representing: statistics, and observers over them."""

from onnxq.observers.aliases import ALIASES
from onnxq.observers.base import OBSERVERS, Observer, qparams
from onnxq.observers.constant import observe_constant
from onnxq.observers.make import make_observer
from onnxq.observers.statistics import (
    EmaStatistic,
    HistogramStatistic,
    RangeStatistic,
    StatisticKind,
    VotesStatistic,
    statistic_from_arrays,
)

__all__ = [
    "ALIASES",
    "OBSERVERS",
    "EmaStatistic",
    "HistogramStatistic",
    "Observer",
    "RangeStatistic",
    "StatisticKind",
    "VotesStatistic",
    "make_observer",
    "observe_constant",
    "qparams",
    "statistic_from_arrays",
]
