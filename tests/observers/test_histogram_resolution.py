"""What a histogram of 0.8 % bins costs: percentiles and least squared errors against those of the raw values."""

import functools

import numpy as np
import pytest

from onnxq.numerics.affine import fake_quantize
from onnxq.numerics.ranges import MIN_SCALE, qparams_from_range
from onnxq.observers import HistogramStatistic, make_observer
from onnxq.types import QuantSpec

BIN = 2.0**-7
"""Width of a bin over the magnitude of its smallest value, at most."""

ASYMMETRIC, SYMMETRIC, RECTIFYING = QuantSpec("uint8", symmetric=False), QuantSpec("int8"), QuantSpec("uint8")


def histogram(array):
    statistic = HistogramStatistic()
    statistic.update(array)
    return statistic


@functools.cache
def values(name, count):
    generator = np.random.default_rng(len(name))
    normal, zeros = generator.normal(size=count), np.zeros(count)
    data = {
        "normal": normal,
        "heavy tail": generator.standard_t(3, count),
        "very heavy tail": generator.standard_cauchy(count),
        "many decades": np.exp(6.0 * normal) * np.sign(generator.uniform(-1, 1, count)),
        "tiny": normal * 1e-20,
        "huge": normal * 1e20,
        "far from zero": normal + 50.0,
        "uniform": generator.uniform(-0.2, 1.0, count),
        "whole numbers": generator.integers(-9, 10, count),
        "mostly zeros": np.where(generator.uniform(size=count) < 0.9, 0.0, normal),
        "all zero": zeros,
        "constant": zeros + 3.3,
        "negative constant": zeros - 3.3e-4,
        "two values": np.where(normal > 0.5, 7.0, -1.0),
        "two far values": np.where(normal > 2.0, 1e6, 1e-6),
    }
    return data[name].astype(np.float32)


NAMES = [
    "normal",
    "heavy tail",
    "very heavy tail",
    "many decades",
    "tiny",
    "huge",
    "far from zero",
    "uniform",
    "whole numbers",
    "mostly zeros",
    "all zero",
    "constant",
    "negative constant",
    "two values",
    "two far values",
]


def expected_percentile(array, percentile):
    """numpy's percentile, and the bins of its two neighbours in the share that each of them has in it."""
    found, below, above = (
        float(np.percentile(array, percentile, method=method)) for method in ("linear", "lower", "higher")
    )
    share = (found - below) / (above - below) if above > below else 0.0
    return found, BIN * ((1.0 - share) * abs(below) + share * abs(above))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", [1, 2, 11, 20_001])
def test_percentiles_are_within_a_bin_of_those_of_the_values(name, count):
    """Between neighbours of one sign that is 0.8 % of the percentile itself."""
    array = values(name, count).astype(np.float64)
    statistic = histogram(array.astype(np.float32))
    for percentile in (51.0, 75.0, 90.0, 99.0, 99.9, 99.999, 100.0):
        observer = make_observer(f"percentile:{percentile}")
        found = {spec: observer.range(statistic, spec) for spec in (ASYMMETRIC, SYMMETRIC, RECTIFYING)}
        high, high_bin = expected_percentile(array, percentile)
        low, low_bin = expected_percentile(array, 100.0 - percentile)
        assert abs(found[ASYMMETRIC][0] - low) <= low_bin * (1 + 1e-12) + 1e-12 * abs(low)
        assert abs(found[ASYMMETRIC][1] - high) <= high_bin * (1 + 1e-12) + 1e-12 * abs(high)
        for spec, magnitudes in ((SYMMETRIC, np.abs(array)), (RECTIFYING, np.maximum(array, 0.0))):
            reach, bin_width = expected_percentile(magnitudes, percentile)
            # Never wider than the values: the side that has fewer of them may end before.
            assert abs(found[spec][1] - min(reach, max(array.max(), 0.0))) <= bin_width * (1 + 1e-12) + 1e-12 * reach
        assert abs(found[SYMMETRIC][0] + min(np.percentile(np.abs(array), percentile), max(-array.min(), 0.0))) <= (
            expected_percentile(np.abs(array), percentile)[1] * (1 + 1e-12) + 1e-12 * abs(array).max()
        )


FORMATS = [
    QuantSpec("int8"),
    QuantSpec("int4"),
    QuantSpec("int16"),
    QuantSpec("uint8"),
    QuantSpec("int8", power_of_two=True),
    QuantSpec("fp8_e4m3"),
]

MANY = 200_000
"""The best of many candidates is partly luck: with n values errors vary by sqrt(0.8 / n), four times which is 0.8 %."""


def mean_square(array, low, high, spec):
    quantized = fake_quantize(array, qparams_from_range(low, high, spec))
    return float(np.mean(np.subtract(array, quantized, dtype=np.float64) ** 2))


def least_mean_square(array, spec):
    """The best of a hundred symmetric ranges; every 20th value, and all that clipping decides on, show where it is."""
    reach = float(array.max()) if spec == RECTIFYING else float(np.abs(array).max())
    order = np.argsort(np.abs(array))
    few = array[np.concatenate([order[:-500:20], order[-500:]])]
    weight = np.repeat([20.0, 1.0], [len(few) - 500, 500])

    def rough(ratio):
        quantized = fake_quantize(few, qparams_from_range(-reach * ratio, reach * ratio, spec))
        return float(weight @ np.subtract(few, quantized, dtype=np.float64) ** 2)

    ratios = np.geomspace(0.005, 1.0, 100)
    middle = ratios[np.argmin([rough(ratio) for ratio in ratios])]
    near = np.unique(np.minimum(middle * np.geomspace(0.92, 1.08, 9), 1.0))
    return min(mean_square(array, -reach * ratio, reach * ratio, spec) for ratio in near)


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("heavy tail", QuantSpec("int8")),
        ("heavy tail", QuantSpec("int16")),
        ("heavy tail", QuantSpec("fp8_e4m3")),
        ("huge", QuantSpec("int8")),
        ("huge", QuantSpec("int4")),
        ("uniform", QuantSpec("int8", power_of_two=True)),
        ("mostly zeros", QuantSpec("int4")),
        ("mostly zeros", RECTIFYING),
    ],
    ids=str,
)
def test_mse_is_within_one_percent_of_the_best_range_for_the_values(name, spec):
    # Zeros have no error: what the others are is enough, and the histogram sees them all.
    array = values(name, 10 * MANY if name == "mostly zeros" else MANY)
    low, high = make_observer("mse").range(histogram(array), spec)
    kept = array[array != 0]
    assert mean_square(kept, low, high, spec) <= 1.01 * least_mean_square(kept, spec)


@pytest.mark.parametrize("spec", FORMATS, ids=str)
@pytest.mark.parametrize("name", ["all zero", "constant", "negative constant", "two values", "two far values"])
def test_mse_of_few_distinct_values_is_within_half_a_step(name, spec):
    """Where in its bin a value lies is not known, so a lucky scale cannot be found; half a step is what it is worth."""
    array = values(name, 1000)
    low, high = make_observer("mse").range(histogram(array), spec)
    chosen = qparams_from_range(low, high, spec)
    error = np.abs(np.subtract(array, fake_quantize(array, chosen), dtype=np.float64))
    if not spec.evenly_spaced:
        assert error.max() <= 2.0**-4 * np.abs(array).max() * (1 + 1e-6)  # half of 2^-3, the step of e4m3
    else:
        negative_part = max(0.0, -float(array.min())) if spec.qmin == 0 else 0.0
        assert error.max() <= max(0.5 * float(chosen.scale) * (1 + 1e-6), negative_part)


def test_mse_of_values_below_every_scale_keeps_their_range():
    """Scales end at 2^-62; values below half of that become zero with any of them."""
    array = values("tiny", 1000)
    low, high = make_observer("mse").range(histogram(array), QuantSpec("int8"))
    assert array.min() <= low <= high <= array.max()
    chosen = qparams_from_range(low, high, QuantSpec("int8"))
    assert chosen.scale == np.float32(MIN_SCALE)
    assert not fake_quantize(array, chosen).any()
