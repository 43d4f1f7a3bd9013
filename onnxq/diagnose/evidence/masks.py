"""Stand-ins for minus infinity inside of a range: a group of equal values far away from all others."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from onnxq.diagnose.causes import MaskQuantized
from onnxq.diagnose.evidence.case import Case, Evidence
from onnxq.diagnose.experiment import with_range

LEAST = 1e3
"""No score is as large as this; masks are -1e4, -1e9, the smallest number of a format."""

FAR = 50.0
FRACTION = 1e-3


def masks(case: Case) -> Iterator[Evidence]:
    for row, seen in case.computed():
        if -seen.low < LEAST or -seen.low < seen.high:
            continue
        masked = seen.bins.middle <= 0.5 * seen.low
        others = ~masked & (seen.bins.count > 0)
        if not others.any() or seen.bins.count[masked].sum() < FRACTION * seen.bins.count.sum():
            continue
        low, high = float(seen.bins.lower[others].min()), float(seen.bins.upper[others].max())
        usual = max(abs(low), abs(high))
        if usual == 0 or -seen.low < FAR * usual or not np.isfinite(usual):
            continue  # a mask of nothing but its two values loses nothing
        yield Evidence(MaskQuantized(row.name, row.node, seen.low, usual), with_range(row.name, low, high))
