"""Ranges that one sample sets, or a few values of any."""

from __future__ import annotations

from collections.abc import Iterator

from onnxq.diagnose.causes import OutlierSample, OutlierValues
from onnxq.diagnose.evidence.case import Case, Evidence
from onnxq.diagnose.experiment import with_range
from onnxq.observers import make_observer
from onnxq.observers.fixed import Fixed

FAR = 3.0
"""A sample is an outlier where its largest value is this many times that of any other sample."""

FAR_VALUES = 4.0
"""Values are outliers where they are this many times as large as all but a fraction of the others."""

FRACTION = 1e-4


def outliers(case: Case) -> Iterator[Evidence]:
    for row, seen in case.computed():
        if isinstance(make_observer(case.state.plan[row.name].observer), Fixed):
            continue  # no value has set that range
        if len(seen.peaks) > 1:
            (largest, sample), (second, _) = seen.peaks[:2]
            if second > 0 and largest >= FAR * second and case.represented(row) >= 2 * second:
                low, high = max(seen.low, -second), min(seen.high, second)
                yield Evidence(OutlierSample(row.name, sample, largest, low, high), with_range(row.name, low, high))
                continue
        low, high = seen.within(FRACTION)
        usual = max(abs(low), abs(high))
        if usual > 0 and min(seen.magnitude, case.represented(row)) >= FAR_VALUES * usual:
            yield Evidence(OutlierValues(row.name, seen.magnitude, usual, FRACTION), with_range(row.name, low, high))
