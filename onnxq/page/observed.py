"""What calibration saw of tensors, in the form of the page: ranges, the samples that set them, histograms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from onnxq.json_file import JsonObject
from onnxq.observers.statistics import HistogramStatistic, RangeStatistic
from onnxq.page.histogram import Histogram
from onnxq.page.numbers import short


def observed_json(statistics: Mapping[str, Mapping[str, RangeStatistic]], wanted: Iterable[str]) -> JsonObject:
    """Tensor -> lowest and highest value, the largest magnitudes with their samples, a histogram where one was kept."""
    found: JsonObject = {}
    for tensor in wanted:
        seen = [one for one in statistics.get(tensor, {}).values() if one.rows and (one.count > 0).any()]
        if not seen:
            continue
        # One with a histogram tells more.
        statistic = max(seen, key=lambda one: isinstance(one, HistogramStatistic))
        filled = statistic.count > 0
        entry: JsonObject = {
            "low": short(statistic.minimum[filled].min()),
            "high": short(statistic.maximum[filled].max()),
            "peaks": [[short(magnitude), sample] for magnitude, sample in statistic.peaks],
        }
        if isinstance(statistic, HistogramStatistic):
            histogram = Histogram.of_statistic(statistic)
            if histogram is not None:
                entry["histogram"] = histogram.to_json()
        if statistic.nonfinite:
            entry["nonfinite"] = statistic.nonfinite
        found[tensor] = entry
    return found
