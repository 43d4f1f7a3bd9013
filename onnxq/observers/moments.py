"""Mean and spread of the values in a histogram, the values of one bin taken as evenly spread over it.

A bin is at most 2^-7 (0.8 %) of its magnitude wide, so means are off by 0.4 % of the magnitude at the very worst (all
values at one edge of their bins) and far less for real data, where the errors cancel. As counts only add up, moments
do not depend on batch size, order or sharding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxq.observers.statistics import Bins


@dataclass(frozen=True)
class Moments:
    """`deviation` is the square root of the mean squared distance from `mean` (divided by n, not n - 1)."""

    mean: float
    mean_magnitude: float
    deviation: float


def moments(bins: Bins) -> Moments:
    """Moments of the binned values, of which there is at least one."""
    share = bins.count / bins.count.sum()
    middle = bins.middle
    mean = float(share @ middle)
    # The second term is the variance of values spread over a bin; it matters when all values lie in few bins.
    variance = float(share @ ((middle - mean) ** 2 + (bins.upper - bins.lower) ** 2 / 12.0))
    return Moments(mean, float(share @ np.abs(middle)), float(np.sqrt(variance)))


def nonzero(bins: Bins) -> Bins:
    """The bins without zero, which every format holds exactly."""
    keep = bins.code != 0
    return Bins(bins.code[keep], bins.lower[keep], bins.upper[keep], bins.count[keep])
