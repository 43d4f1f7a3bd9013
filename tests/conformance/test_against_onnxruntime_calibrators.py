"""The ranges of onnxruntime's own calibrators beside those of onnxq, on the tensors of a real network.

onnxruntime's calibrators run a session without optimizations and with a thread for each core. Sums of several threads
round differently, so where bits are compared its session gets one thread, and onnxq's runs without optimizations.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnxruntime.quantization.calibrate import CalibrationMethod, create_calibrator, entropy
from onnxruntime.quantization.quant_utils import smooth_distribution

from onnxq.demo import load_data, model_path
from onnxq.graph import Graph
from onnxq.observers import HistogramStatistic, RangeStatistic, make_observer
from onnxq.runtime.collect import Engine, collect
from onnxq.runtime.feeds import Feed
from onnxq.runtime.session import Optimize
from onnxq.runtime.tap import Tap
from onnxq.types import QuantSpec

SAMPLES = 64
BIN = 2.0**-7
"""Bins of onnxq are at most this share of their values wide."""

LINEAR_BINS, LEVELS = 1024, 255
"""For entropy: onnxruntime's bins over both signs, and the levels of int8. Its defaults, 128 of each, leave a single
threshold to choose from, the largest value."""


class Reader:
    """Feeds in the form that the calibrators ask for."""

    def __init__(self, feeds: list[Feed]) -> None:
        self._feeds: Iterator[Feed] = iter(feeds)

    def get_next(self) -> Feed | None:
        return next(self._feeds, None)


@functools.cache
def feeds() -> list[Feed]:
    return [{"image": image[None]} for image in load_data().calibration[:SAMPLES]]


def theirs(
    method: CalibrationMethod, folder: Path, *, threads: int = 1, operators: tuple[str, ...] = (), **options: Any
) -> dict[str, tuple[float, float]]:
    """Tensor -> the range that onnxruntime's calibrator finds; `threads` 0 is its own choice."""
    augmented = folder / "augmented.onnx"
    calibrator = create_calibrator(
        model_path(), list(operators), str(augmented), calibrate_method=method, extra_options=options
    )
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    calibrator.infer_session = onnxruntime.InferenceSession(augmented, settings, providers=["CPUExecutionProvider"])
    calibrator.collect_data(Reader(feeds()))
    found = calibrator.compute_data()
    return {name: (float(found[name].lowest.item()), float(found[name].highest.item())) for name in found}


@functools.cache
def graph() -> Graph:
    loaded = Graph.load(model_path())
    loaded.infer_shapes()
    return loaded


def ours(tensors: Mapping[str, Any], optimize: Optimize | None = "none") -> dict[str, RangeStatistic]:
    """Histograms of the tensors."""
    statistics: dict[str, list[RangeStatistic]] = {name: [HistogramStatistic()] for name in tensors}
    collect(graph(), feeds(), statistics, optimize=optimize, engine=Engine(workers=1))
    return {name: kinds[0] for name, kinds in statistics.items()}


def values_of(tensors: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Every value of the tensors, in ascending order, from the same runs as `ours`."""
    tap = Tap(graph(), tensors, optimize="none", threads=1)
    runs = [{name: array.copy() for name, array in tap.run(feed).items()} for feed in feeds()]
    return {name: np.sort(np.concatenate([run[name].ravel() for run in runs])).astype(np.float64) for name in tensors}


def extremes(statistic: RangeStatistic) -> tuple[float, float]:
    return float(statistic.minimum[0]), float(statistic.maximum[0])


def test_minimum_and_maximum_of_every_tensor_have_the_same_bits(tmp_path: Path) -> None:
    expected = theirs(CalibrationMethod.MinMax, tmp_path)
    assert len(expected) == 24
    assert {name: extremes(statistic) for name, statistic in ours(expected).items()} == expected


def test_minimum_and_maximum_of_optimized_runs_differ_by_rounding_only(tmp_path: Path) -> None:
    """As both tools are used. The longest sum has 576 products, there are seven layers, and errors add like a random
    walk: sqrt(7 * 576) * 2^-24 is 4e-6 of the largest value. Two and a half times that is allowed."""
    expected = theirs(CalibrationMethod.MinMax, tmp_path, threads=0)
    for name, statistic in ours(expected, optimize=None).items():
        largest = max(map(abs, expected[name]))
        np.testing.assert_allclose(extremes(statistic), expected[name], rtol=0, atol=1e-5 * largest, err_msg=name)


def percentile_and_doubt(values: np.ndarray, percentile: float) -> tuple[float, float]:
    """numpy's percentile of ascending values, and how far its definition lets tools disagree.

    onnxruntime takes the first value below which the share lies, numpy goes on to the next one in proportion: the gap
    between the two is open. onnxq knows both to a bin.
    """
    below = int(np.floor(percentile / 100.0 * (len(values) - 1)))
    pair = values[below : below + 2]
    return float(np.percentile(values, percentile)), float(pair[-1] - pair[0] + BIN * np.abs(pair).max())


@pytest.mark.parametrize("percentile", [99.0, 99.9, 99.999])
def test_symmetric_percentiles_agree_to_the_bins_of_both(percentile: float, tmp_path: Path) -> None:
    expected = theirs(CalibrationMethod.Percentile, tmp_path, percentile=percentile, symmetric=True, num_bins=2048)
    observer, raw = make_observer(f"percentile:{percentile}"), values_of(expected)
    for name, statistic in ours(expected).items():
        low, high = observer.range(statistic, QuantSpec("int8"))
        magnitudes = np.sort(np.abs(raw[name]))
        exact, doubt = percentile_and_doubt(magnitudes, percentile)
        width = (magnitudes[-1] - magnitudes[0]) / 2048 * (1 + 1e-6)  # its edges are rounded to float32
        assert abs(high - min(exact, max(raw[name][-1], 0.0))) <= doubt, name
        assert abs(low - max(-exact, min(raw[name][0], 0.0))) <= doubt, name
        np.testing.assert_allclose([low, high], expected[name], rtol=0, atol=doubt + width, err_msg=name)


@pytest.mark.parametrize("percentile", [99.0, 99.9])
def test_percentiles_at_both_ends_agree_to_the_bins_of_both(percentile: float, tmp_path: Path) -> None:
    """onnxruntime divides what it clips between the ends; onnxq clips the share at each end."""
    expected = theirs(CalibrationMethod.Percentile, tmp_path, percentile=percentile, symmetric=False, num_bins=2048)
    one_end = 50.0 + 0.5 * percentile
    observer, raw = make_observer(f"percentile:{one_end}"), values_of(expected)
    for name, statistic in ours(expected).items():
        found = observer.range(statistic, QuantSpec("uint8", symmetric=False))
        width = 2.0 * np.abs(raw[name]).max() / 2048 * (1 + 1e-6)
        for end, share, other in zip(found, (100.0 - one_end, one_end), expected[name], strict=True):
            exact, doubt = percentile_and_doubt(raw[name], share)
            assert abs(end - exact) <= doubt, name
            assert abs(end - other) <= doubt + width, name


def divergence(values: np.ndarray, threshold: float, bins_of_a_level: int) -> float:
    """onnxruntime's divergence of a threshold, from the raw values and with its own functions.

    Its search lays bins over the largest value, and most thresholds are then no whole number of levels: what is left
    over counts as empty. Here the bins are laid over the threshold, so that all thresholds are evaluated alike.
    """
    counts = np.histogram(values, LEVELS * bins_of_a_level, range=(-threshold, threshold))[0]
    p = counts.copy()
    p[0] += np.count_nonzero(values < -threshold)
    p[-1] += np.count_nonzero(values > threshold)
    members = np.count_nonzero(p.reshape(LEVELS, -1), axis=1)
    average = counts.reshape(LEVELS, -1).sum(axis=1) // np.maximum(members, 1)
    return float(entropy(smooth_distribution(p), smooth_distribution(np.repeat(average, bins_of_a_level))))


def test_entropy_is_not_worse_by_the_divergence_of_onnxruntime(tmp_path: Path) -> None:
    expected = theirs(
        CalibrationMethod.Entropy, tmp_path, operators=("Add",), num_bins=LINEAR_BINS, num_quantized_bins=LEVELS
    )
    assert set(expected) == {"stem.relu.out", "residual2.bn.out", "residual.add.out"}
    raw = values_of(expected)
    for name, statistic in ours(expected).items():
        found = max(map(abs, make_observer("kl").range(statistic, QuantSpec("int8"))))
        other = max(map(abs, expected[name]))
        # Where bins are hardly finer than levels every histogram is like its averages, and the lowest threshold that
        # onnxruntime tries, LEVELS / LINEAR_BINS of the largest value, wins. Upwards the tools differ by that much.
        assert 1 / 1.5 <= found / other <= LINEAR_BINS / (LEVELS - 1), name
        for bins_of_a_level in (2, 4):
            # By chance alone, n values of equal probability diverge by (bins - levels) / 2n from their averages.
            chance = LEVELS * (bins_of_a_level - 1) / (2 * len(raw[name]))
            mine, its = (divergence(raw[name], float(t), bins_of_a_level) for t in (found, other))
            assert mine <= its + chance, name
