"""The range after which the distribution of values changes least: entropy calibration.

As in TensorRT (Migacz, "8-bit inference with TensorRT", 2017): for each threshold t, P is the histogram of |x| up to t
with everything beyond t added to the last bin, Q the same histogram averaged over the levels of the format; the t with
the smallest Kullback-Leibler divergence KL(P || Q) wins. Zeros are left out, because every format holds zero exactly.
Thresholds that clip more than half of the values are not tried.

The 2048 linear bins that this needs are cut out of the logarithmic histogram, so an outlier cannot make them too
coarse: while the best threshold leaves fewer than two of them to a level, the search is repeated on bins cut below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np

from onnxq.observers.base import OBSERVERS, Observer, histogram_of, outer_range, saturates_negative
from onnxq.observers.excess import one_sign
from onnxq.observers.grid import levels_of_magnitude, need_integer_levels
from onnxq.observers.statistics import Bins, RangeStatistic, StatisticKind
from onnxq.types.spec import QuantSpec

LINEAR_BINS = 2048
CANDIDATES = 128
"""Thresholds 0.7 % of the largest apart, which is how exactly the histogram knows the values there."""
MOST_LEVELS = 1024
EMPTY_LEVEL = 1e-4
"""Count that stands for a level which clipped values fall on and no others do; zero would forbid such a threshold."""
NEARLY_NOTHING = 1e-300
"""Stands for zero under a logarithm whose factor is zero."""
LEAST_KEPT = 0.5
"""Share of the values that a threshold keeps: one below all of them leaves P a single bin, which any Q matches."""
MOST_ZOOMS = 8


@OBSERVERS.register("kl")
@dataclass(frozen=True)
class Kl(Observer):
    """Minimises the divergence on |x| and clips both ends at the same threshold t: [max(min, -t), min(max, t)].

    Formats of more than 1024 levels are finer than the histogram; they get the whole range.
    """

    name: ClassVar[str] = "kl"
    statistic: ClassVar[StatisticKind] = "histogram"

    def rows(self, statistic: RangeStatistic, spec: QuantSpec) -> tuple[np.ndarray, np.ndarray]:
        need_integer_levels(self.name, spec)
        histogram = histogram_of(statistic)
        low, high = outer_range(statistic)
        for row in range(histogram.rows):
            levels = levels_of_magnitude(spec, one_sided=bool(low[row] >= 0 or high[row] <= 0))
            if levels <= MOST_LEVELS:
                bins = histogram.bins(row)
                signs = (1,) if saturates_negative(spec) else (1, -1)
                threshold = best_threshold([one_sign(bins, sign) for sign in signs], levels)
                low[row], high[row] = max(low[row], -threshold), min(high[row], threshold)
        return low, high


def best_threshold(sides: Sequence[Bins], levels: int) -> float:
    """The threshold on |x| with the smallest divergence for a number of levels; 0 when every value is 0.

    `sides` are the bins of |x| for the values above and for those below zero, without zero.
    """
    sides = [side for side in sides if len(side.count)]
    if not sides:
        return 0.0
    top = max(float(side.upper[-1]) for side in sides)
    total = float(sum(side.count.sum() for side in sides))
    size = max(LINEAR_BINS, 8 * levels)
    candidates, edges = _candidates(levels, size)
    for _ in range(MOST_ZOOMS):
        divergence = _divergences(_cumulative(sides, np.linspace(0.0, top, size + 1)), total, candidates, edges)
        # Of equals the widest, which clips least.
        best = len(candidates) - 1 - int(np.argmin(divergence[::-1]))
        top = top * int(candidates[best]) / size
        # Levels of a single linear bin are equal to their average: the true cost shows on finer bins only.
        if candidates[best] >= 2 * levels:
            break
    return top


@cache
def _candidates(levels: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of linear bins to keep, ascending, and for each (one line) the bins between which its levels lie."""
    candidates = np.unique(np.linspace(levels, size, CANDIDATES).astype(np.int64))
    return candidates, np.arange(levels + 1)[None, :] * candidates[:, None] // levels


def _cumulative(sides: Sequence[Bins], edges: np.ndarray) -> np.ndarray:
    """How many values lie below each edge, values of one bin taken as evenly spread over it."""
    below = np.zeros(len(edges))
    for side in sides:
        positions = np.empty(2 * len(side.count))
        counts = np.empty(2 * len(side.count))
        positions[0::2], positions[1::2] = side.lower, side.upper
        np.cumsum(side.count, out=counts[1::2])
        counts[0], counts[2::2] = 0.0, counts[1:-1:2]
        below += np.interp(edges, positions, counts)
    return below


def _divergences(cumulative: np.ndarray, total: float, candidates: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """KL(P || Q) for each candidate number of linear bins, all at once from sums over the bins before an index.

    `edges` has one line for each candidate: the bins between which its levels lie.
    """
    counts = np.diff(cumulative)
    entropy, occupied = _sums_before(_x_log_x(counts)), _sums_before(counts > 0)
    kept, last = cumulative[candidates] - cumulative[0], counts[candidates - 1]
    clipped = total - cumulative[candidates]

    below, before = cumulative.take(edges), occupied.take(edges)
    mass, members = below[:, 1:] - below[:, :-1], before[:, 1:] - before[:, :-1]
    members[:, -1] += (last == 0) & (clipped > 0)
    average = mass / np.maximum(members, 1.0, out=members)

    log_p = entropy[candidates] - _x_log_x(last) + _x_log_x(last + clipped)
    log_q = clipped * np.log(np.maximum(average[:, -1], EMPTY_LEVEL))
    log_q += (mass * np.log(np.maximum(average, NEARLY_NOTHING, out=average), out=average)).sum(axis=1)
    with np.errstate(divide="ignore"):
        divergences = (log_p - log_q) / total - np.log(total) + np.log(kept)
    return np.where(kept >= LEAST_KEPT * total, divergences, np.inf)


def _sums_before(values: np.ndarray) -> np.ndarray:
    sums = np.zeros(len(values) + 1)
    np.cumsum(values, out=sums[1:])
    return sums


def _x_log_x(x: np.ndarray) -> np.ndarray:
    return np.asarray(x * np.log(np.maximum(x, NEARLY_NOTHING)))
