"""The observers that search: their ranges against brute force and textbook loops on the values themselves."""

import functools

import numpy as np
import pytest

from onnxq.numerics.affine import fake_quantize
from onnxq.numerics.ranges import qparams_from_range
from onnxq.observers import HistogramStatistic, make_observer
from onnxq.observers.excess import Excess, one_sign
from onnxq.observers.expected_error import ExpectedError
from onnxq.observers.kl import CANDIDATES, LINEAR_BINS, _candidates, _cumulative, _divergences, best_threshold
from onnxq.types import PerChannel, QuantSpec

COUNT = 200_000
"""So many values that the luck of single ones, which a histogram cannot know, is far below 1 % of the error."""


@functools.cache
def values(name, seed=0):
    generator = np.random.default_rng(seed)
    normal, laplace = generator.normal(size=COUNT), generator.laplace(size=COUNT)
    if name == "outliers":
        laplace[:8] *= 20
    elif name == "lopsided":
        normal += 0.5
        normal[:3] = [40, 35, 38]
    data = {
        "normal": normal,
        "relu": np.maximum(normal, 0),
        "laplace": laplace,
        "outliers": laplace,
        "lopsided": normal,
        "far from zero": normal + 20,
        "negative": -np.abs(laplace),
        "heavy tail": generator.standard_t(3, COUNT),
    }
    return data[name].astype(np.float32)


def histogram(array, axis=None):
    statistic = HistogramStatistic(axis)
    statistic.update(array)
    return statistic


def squares(array, low, high, spec):
    quantized = fake_quantize(array, qparams_from_range(low, high, spec))
    return np.subtract(array, quantized, dtype=np.float64) ** 2


def mean_square(array, low, high, spec):
    return float(np.mean(squares(array, low, high, spec)))


SYMMETRIC = [
    QuantSpec("int8"),
    QuantSpec("int8", narrow_range=True),
    QuantSpec("int8", power_of_two=True),
    QuantSpec("int8", rounding="floor"),
    QuantSpec("uint8"),
    QuantSpec("int6"),
    QuantSpec("int4"),
    QuantSpec("int3", rounding="half_away"),
    QuantSpec("int2"),
    QuantSpec("int1"),
    QuantSpec("fp8_e4m3"),
    QuantSpec("fp8_e5m2"),
]


@pytest.mark.parametrize("spec", SYMMETRIC, ids=str)
@pytest.mark.parametrize(("name", "seed"), [("normal", 1), ("relu", 2), ("outliers", 3), ("lopsided", 4)])
def test_mse_is_within_one_percent_of_the_best_of_400_ranges(name, seed, spec):
    array = values(name, seed)
    low, high = make_observer("mse").range(histogram(array), spec)
    assert array.min() <= low <= high <= array.max()
    largest = float(array.max()) if spec.dtype.startswith("uint") else float(np.abs(array).max())
    scales = {}
    for ratio in np.geomspace(0.005, 1.0, 400):
        scales.setdefault(float(qparams_from_range(-largest * ratio, largest * ratio, spec).scale), ratio)
    # To choose among 400: the largest values, which decide about clipping, and every 20th of the others. All values
    # for the ten best.
    order = np.argsort(np.abs(array))
    sample = np.concatenate([array[order[:-1000:20]], array[order[-1000:]]])
    weight = np.repeat([20.0, 1.0], [len(sample) - 1000, 1000])
    rough = {r: squares(sample, -largest * r, largest * r, spec) @ weight for r in scales.values()}
    finalists = sorted(rough, key=rough.get)[:10]
    best = min(mean_square(array, -largest * r, largest * r, spec) for r in finalists)
    assert mean_square(array, low, high, spec) <= 1.01 * best
