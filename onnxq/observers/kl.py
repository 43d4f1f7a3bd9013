"""The range after which the distribution of values changes least: entropy calibration.

As in TensorRT (Migacz, "8-bit inference with TensorRT", 2017): for each threshold t, P is the histogram of |x| up to t
with everything beyond t added to the last bin, Q the same histogram averaged over the levels of the format; the t with
the smallest Kullback-Leibler divergence KL(P || Q) wins. Zeros are left out, because every format holds zero exactly.

The 2048 linear bins that this needs are cut out of the logarithmic histogram, so an outlier cannot make them too
coarse: while the best threshold leaves fewer than two of them to a level, the search is repeated on bins cut below it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxq.errors import UnsupportedError
from onnxq.observers.base import OBSERVERS, Observer, histogram_of, outer_range, saturates_negative
from onnxq.observers.statistics import Bins, RangeStatistic, StatisticKind
from onnxq.types.spec import QuantSpec

LINEAR_BINS = 2048
CANDIDATES = 256
MOST_LEVELS = 1024
EMPTY_LEVEL = 1e-4
"""Count that stands for a level which clipped values fall on and no others do; zero would forbid such a threshold."""
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
        if spec.grid == "float":
            raise UnsupportedError(
                f"observer 'kl' compares evenly spaced levels, which {spec.dtype} does not have: use minmax, "
                "percentile or mse"
            )
        histogram = histogram_of(statistic)
        low, high = outer_range(statistic)
        for row in range(histogram.rows):
            levels = _levels(spec, one_sided=bool(low[row] >= 0 or high[row] <= 0))
            if levels <= MOST_LEVELS:
                bins = histogram.bins(row).magnitudes(positive_only=saturates_negative(spec))
                threshold = best_threshold(bins, levels)
                low[row], high[row] = max(low[row], -threshold), min(high[row], threshold)
        return low, high


def _levels(spec: QuantSpec, *, one_sided: bool) -> int:
    """How many steps the format has for |x|."""
    if spec.symmetric:
        return max(2, -spec.qmin, spec.qmax)
    steps = spec.qmax - spec.qmin
    return max(2, steps if one_sided else (steps + 1) // 2)


def best_threshold(bins: Bins, levels: int) -> float:
    """The threshold on |x| with the smallest divergence for a number of levels; 0 when every value is 0."""
    nonzero = bins.upper > 0
    bins = Bins(bins.code[nonzero], bins.lower[nonzero], bins.upper[nonzero], bins.count[nonzero])
    if len(bins.count) == 0:
        return 0.0
    top = float(bins.upper[-1])
    size = max(LINEAR_BINS, 8 * levels)
    candidates = np.unique(np.linspace(levels, size, CANDIDATES).astype(np.int64))
    for _ in range(MOST_ZOOMS):
        divergence = _divergences(_cumulative(bins, np.linspace(0.0, top, size + 1)), candidates, levels, bins)
        # Of equals the widest, which clips least.
        best = len(candidates) - 1 - int(np.argmin(divergence[::-1]))
        top = top * int(candidates[best]) / size
        # Levels of a single linear bin are equal to their average: the true cost shows on finer bins only.
        if candidates[best] >= 2 * levels:
            break
    return top


def _cumulative(bins: Bins, edges: np.ndarray) -> np.ndarray:
    """How many values lie below each edge, values of one bin taken as evenly spread over it."""
    end = np.cumsum(bins.count)
    positions = np.stack([bins.lower, bins.upper], axis=1).ravel()
    counts = np.stack([end - bins.count, end], axis=1).ravel()
    return np.asarray(np.interp(edges, positions, counts.astype(np.float64)))


def _divergences(cumulative: np.ndarray, candidates: np.ndarray, levels: int, bins: Bins) -> np.ndarray:
    """KL(P || Q) for each candidate number of linear bins, all at once from sums over the bins before an index."""
    counts = np.diff(cumulative)
    total = float(bins.count.sum())
    entropy = np.concatenate([[0.0], np.cumsum(_x_log_x(counts))])
    occupied = np.concatenate([[0], np.cumsum(counts > 0)])
    kept, last = cumulative[candidates] - cumulative[0], counts[candidates - 1]
    clipped = total - cumulative[candidates]

    edges = np.arange(levels + 1)[None, :] * candidates[:, None] // levels
    mass = np.diff(cumulative[edges], axis=1)
    members = np.diff(occupied[edges], axis=1)
    members[:, -1] += (last == 0) & (clipped > 0)
    average = mass / np.maximum(members, 1)

    log_p = entropy[candidates] - _x_log_x(last) + _x_log_x(last + clipped)
    log_q = (mass * np.log(np.where(mass > 0, average, 1.0))).sum(axis=1)
    log_q += clipped * np.log(np.maximum(average[:, -1], EMPTY_LEVEL))
    with np.errstate(divide="ignore"):
        divergences = (log_p - log_q) / total - np.log(total) + np.log(kept)
    return np.where(kept > 0, divergences, np.inf)


def _x_log_x(x: np.ndarray) -> np.ndarray:
    return np.asarray(x * np.log(np.where(x > 0, x, 1.0)))
