"""Observers with a closed formula, against the formula computed from the raw values in float64."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from onnxq.errors import ConfigError
from onnxq.numerics.affine import fake_quantize
from onnxq.numerics.ranges import qparams_from_range
from onnxq.observers import HistogramStatistic, make_observer, observe_constant
from onnxq.observers.aciq import gauss_factor, laplace_factor
from onnxq.observers.grid import covering_scale, range_with_scale
from onnxq.observers.moments import moments
from onnxq.types import QParams, QuantSpec

MOMENT = 2e-4
"""What moments of smooth data differ at most; a bin is 0.8 % wide, and the errors inside bins cancel."""

SYMMETRIC = [
    QuantSpec("int8"),
    QuantSpec("int8", narrow_range=True),
    QuantSpec("int4"),
    QuantSpec("int2"),
    QuantSpec("int16"),
    QuantSpec("uint8"),
]
ASYMMETRIC = [QuantSpec("uint8", symmetric=False), QuantSpec("int4", symmetric=False)]


def normal(count=40_000, mean=0.0, seed=0):
    return np.random.default_rng(seed).normal(mean, 1.5, count).astype(np.float32)


def laplace(count=40_000, seed=1):
    return np.random.default_rng(seed).laplace(0, 0.7, count).astype(np.float32)


def histogram(values):
    statistic = HistogramStatistic()
    statistic.update(values)
    return statistic


def observed(name, values, spec):
    low, high = make_observer(name).range(histogram(values), spec)
    return float(low), float(high)


def squared_error(values, scale, spec):
    quantized = fake_quantize(values, QParams(spec, np.float32(scale), np.int32(0)))
    return float(np.sum(np.subtract(values, quantized, dtype=np.float64) ** 2))


@pytest.mark.parametrize("values", [normal(), normal(mean=4.0), laplace(), np.abs(laplace())], ids=range(4))
def test_moments_are_those_of_the_values(values):
    found, exact = moments(histogram(values).bins()), values.astype(np.float64)
    assert found.mean == pytest.approx(exact.mean(), abs=MOMENT * np.abs(exact).mean())
    assert found.mean_magnitude == pytest.approx(np.abs(exact).mean(), rel=MOMENT)
    assert found.deviation == pytest.approx(exact.std(), rel=MOMENT)


@pytest.mark.parametrize("spec", [*SYMMETRIC, *ASYMMETRIC, QuantSpec("int1"), QuantSpec("fp8_e4m3")], ids=str)
@pytest.mark.parametrize("scale", [0.0371, 0.25, 3.3e-7, 41.0])
def test_a_chosen_scale_comes_back_from_its_range(spec, scale):
    low, high = range_with_scale(np.array(scale), np.array(-1.0), np.array(2.5), spec)
    found = qparams_from_range(low, high, spec)
    assert abs(found.scale - np.float32(scale)) <= np.spacing(np.float32(scale))
    power = 2.0 ** np.floor(np.log2(scale))
    low, high = range_with_scale(np.array(power), np.array(-1.0), np.array(2.5), spec)
    assert qparams_from_range(low, high, spec).scale == power
    assert qparams_from_range(low, high, spec.replace(power_of_two=True)).scale == power


def test_a_scale_too_small_clips_both_ends_by_the_same_factor():
    spec = QuantSpec("uint8", symmetric=False)
    low, high = range_with_scale(np.array(1 / 255), np.array(-1.0), np.array(3.0), spec)
    assert (low, high) == (pytest.approx(-0.25, abs=1 / 255), pytest.approx(0.75, abs=1 / 255))


@pytest.mark.parametrize("values", [normal(), -np.abs(normal()), normal(mean=3.0)], ids=range(3))
def test_absmax_is_the_same_on_both_sides(values):
    largest = float(np.abs(values).max())
    for name in ("absmax", "nnie_max"):
        for spec in (QuantSpec("int8"), ASYMMETRIC[0]):
            assert observed(name, values, spec) == (-largest, largest)
    # A format without negative numbers gains nothing from the negative side.
    assert observed("absmax", values, QuantSpec("uint8"))[1] == max(values.max(), 0)


@pytest.mark.parametrize("sigmas", [2.6, 1.0, 50.0])
@pytest.mark.parametrize("mean", [0.0, 3.0])
def test_clip_std_is_mean_and_deviations_inside_the_values(sigmas, mean):
    values = normal(mean=mean)
    exact = values.astype(np.float64)
    low, high = observed(f"clip_std:{sigmas}", values, ASYMMETRIC[0])
    reach, slack = sigmas * exact.std(), MOMENT * (np.abs(exact).mean() + sigmas * exact.std())
    assert low == pytest.approx(max(exact.min(), exact.mean() - reach), abs=slack)
    assert high == pytest.approx(min(exact.max(), exact.mean() + reach), abs=slack)
    assert values.min() <= low <= high <= values.max()


@pytest.mark.parametrize("spec", SYMMETRIC, ids=str)
def test_lsq_scale_is_the_formula(spec):
    values = laplace()
    found = observe_constant(values, make_observer("lsq"), spec).scale
    assert found == pytest.approx(2 * np.abs(values.astype(np.float64)).mean() / math.sqrt(spec.qmax), rel=MOMENT)
    bins = histogram(values).bins()
    exact = np.float32(2 * np.average(np.abs(bins.middle), weights=bins.count) / math.sqrt(spec.qmax))
    assert abs(found - exact) <= np.spacing(exact)


def test_lsq_of_an_asymmetric_format_begins_at_the_minimum():
    values = np.clip(laplace(), -1, 4)
    spec = ASYMMETRIC[0]
    found = observe_constant(values, make_observer("lsq"), spec)
    scale = 2 * np.abs(values.astype(np.float64)).mean() / math.sqrt(255)
    assert found.scale == pytest.approx(scale, rel=MOMENT)
    assert found.zero_point == -round(float(values.min()) / scale)


@pytest.mark.parametrize(
    ("spec", "levels"),
    [(QuantSpec("int8"), 128), (QuantSpec("int4"), 8), (QuantSpec("uint8"), 256), (QuantSpec("uint4"), 16)],
    ids=str,
)
def test_lsq_plus_scale_is_the_formula(spec, levels):
    values = normal(mean=0.5)
    exact = values.astype(np.float64)
    expected = max(abs(exact.mean() - 3 * exact.std()), abs(exact.mean() + 3 * exact.std())) / levels
    assert observe_constant(values, make_observer("lsq_plus"), spec).scale == pytest.approx(expected, rel=MOMENT)


def test_lsq_plus_of_an_asymmetric_format_spans_three_deviations():
    exact = normal(mean=0.5).astype(np.float64)
    found = observe_constant(exact, make_observer("lsq_plus"), ASYMMETRIC[0])
    scale = 6 * exact.std() / 256
    assert found.scale == pytest.approx(scale, rel=2 * MOMENT)
    assert found.zero_point == pytest.approx((3 * exact.std() - exact.mean()) / scale, abs=1.0)


@pytest.mark.parametrize(("bits", "laplace_paper", "gauss_paper"), [(2, 2.83, 1.71), (3, 3.89, 2.15), (4, 5.03, 2.55)])
def test_aciq_factors_are_those_of_the_paper(bits, laplace_paper, gauss_paper):
    """Table of Banner et al.; it is printed cut off, not rounded, hence a hundredth."""
    assert laplace_factor(2 ** (bits - 1)) == pytest.approx(laplace_paper, abs=0.011)
    assert gauss_factor(2 ** (bits - 1)) == pytest.approx(gauss_paper, abs=0.011)


@pytest.mark.parametrize(("dtype", "levels"), [("int3", 4), ("int4", 8), ("int6", 32)])
def test_aciq_knows_laplace_from_gauss(dtype, levels):
    spec = QuantSpec(dtype)
    values = laplace()
    expected = laplace_factor(levels) * np.abs(values.astype(np.float64)).mean()
    assert observed("aciq", values, spec)[1] == pytest.approx(min(expected, values.max()), rel=1e-3)
    values = normal()
    expected = gauss_factor(levels) * np.sqrt((values.astype(np.float64) ** 2).mean())
    assert observed("aciq", values, spec)[1] == pytest.approx(min(expected, values.max()), rel=1e-3)


def test_aciq_of_rectified_values_counts_all_levels_and_no_zeros():
    values = np.maximum(laplace(), 0)
    low, high = observed("aciq", values, QuantSpec("uint4", symmetric=False))
    exact = values[values > 0].astype(np.float64)
    assert (low, high) == (0.0, pytest.approx(laplace_factor(15) * exact.mean(), rel=1e-3))


@pytest.mark.parametrize("dtype", ["int2", "int3", "int4", "int6", "int8"])
@pytest.mark.parametrize("values", [laplace(), normal(), np.maximum(normal(), 0)], ids=["laplace", "normal", "relu"])
def test_octav_is_the_fixed_point_near_the_least_error(dtype, values):
    spec = QuantSpec(dtype)
    magnitudes = np.abs(values.astype(np.float64))
    magnitudes = magnitudes[magnitudes > 0]
    levels = max(2, -spec.qmin)

    def error(threshold):
        clipped = magnitudes[magnitudes > threshold]
        kept = len(magnitudes) - len(clipped)
        return threshold**2 / (12 * levels**2) * kept + np.sum((clipped - threshold) ** 2)

    threshold = max(abs(end) for end in observed("octav", values, spec))
    clipped = magnitudes[magnitudes > threshold]
    following = clipped.sum() / ((len(magnitudes) - len(clipped)) / (12 * levels**2) + len(clipped))
    # Where few values are left to be clipped, a bin more or less of them counts.
    assert following == pytest.approx(threshold, rel=0.02)
    # The step leaves out that values cross the threshold as it moves, which matters a little where levels are few.
    assert error(threshold) <= 1.005 * min(error(t) for t in np.linspace(0.05, 1, 200) * magnitudes.max())


@pytest.mark.parametrize(
    ("low", "high", "dtype", "scale"),
    [
        (-1.0, 0.9, "int8", 2.0**-7),
        (-1.0, 1.0, "int8", 2.0**-6),
        (-1.01, 0.9, "int8", 2.0**-6),
        (0.0, 127.0, "int8", 1.0),
        (0.0, 127.1, "int8", 2.0),
        (-3.0, 250.0, "uint8", 1.0),
        (-2.0, 1.0, "int2", 1.0),
        (0.0, 300.0, "fp8_e4m3", 1.0),
    ],
)
def test_no_overflow_is_the_smallest_power_of_two_that_holds_all(low, high, dtype, scale):
    spec = QuantSpec(dtype, power_of_two=True)
    values = np.array([low, high, 0.0], np.float32)
    found = observe_constant(values, make_observer("no_overflow"), spec)
    assert found.scale == scale
    kept = np.maximum(values, 0) if dtype == "uint8" else values
    # Nothing is clipped: what is left is rounding, of floats to one part in sixteen.
    assert np.abs(fake_quantize(values, found) - kept).max() <= max(scale / 2, high / 16 if dtype[0] == "f" else 0)


def test_vitis_methods_follow_the_format():
    values = laplace()
    pairs = (("no_overflow", "minmax"), ("min_mse", "mse"), ("min_kl", "kl"))
    for name, plain in (*pairs, ("percentile_position:percentile=99", "percentile:99")):
        for spec in (QuantSpec("int8"), *ASYMMETRIC):
            found = observe_constant(values, make_observer(name), spec)
            assert found == observe_constant(values, make_observer(plain), spec), name
    power = QuantSpec("int4", power_of_two=True)
    same = (observe_constant(values, make_observer(name), power) for name in ("min_mse", "minmax_floor"))
    assert next(same) == next(same)
    wanted = observe_constant(values, make_observer("kl"), QuantSpec("int4")).scale
    nearest = 2.0 ** round(math.log2(wanted))
    assert observe_constant(values, make_observer("min_kl"), power).scale == nearest


@pytest.mark.parametrize("dtype", ["int8", "int4", "int2", "uint4", "fp8_e4m3"])
@pytest.mark.parametrize("values", [laplace(5000), normal(5000), np.abs(laplace(5000)) * 1e-5], ids=range(3))
def test_minmax_floor_takes_the_best_of_five_positions(dtype, values):
    spec = QuantSpec(dtype)
    exact = values.astype(np.float64)
    if dtype == "fp8_e4m3":
        step = np.abs(exact).max() / 448
    else:
        step = max(exact.min() / spec.qmin if spec.qmin else 0.0, exact.max() / spec.qmax)
    first = math.floor(math.log2(1 / step))
    errors = [squared_error(values, 2.0**-p, spec) for p in range(first, first + 5)]
    found = observe_constant(values, make_observer("minmax_floor"), spec).scale
    position = round(-math.log2(found))
    assert found == 2.0**-position
    assert first <= position < first + 5
    # The histogram knows values to 0.8 %, which can tip the scales between two positions that are as good.
    assert errors[position - first] <= 1.02 * min(errors)
    one = observe_constant(values, make_observer("minmax_floor:candidates=1"), spec).scale
    assert one == 2.0**-first


def test_positions_end_at_the_limit_of_the_chip():
    values = laplace() * 1e-6
    names = ("minmax_floor", "min_mse", "no_overflow", "min_kl", "pot_mode", "ema_minmax_floor", "percentile_position")
    for name in names:
        spec = QuantSpec("int8", power_of_two=True)
        assert observe_constant(values, make_observer(f"{name}:max_position=12"), spec).scale == 2.0**-12
        assert observe_constant(values, make_observer(name), spec).scale < 2.0**-20


def test_a_percentile_has_the_positions_that_its_limits_allow():
    values, spec = laplace(), QuantSpec("int8", power_of_two=True)
    plain = observe_constant(values, make_observer("percentile:99"), spec).scale
    position = round(-math.log2(plain))
    for limits, wanted in (("", position), (",max_position=2", 2), (f",min_position={position + 2}", position + 2)):
        found = observe_constant(values, make_observer(f"percentile_position:percentile=99{limits}"), spec).scale
        assert found == 2.0**-wanted
    with pytest.raises(ConfigError, match="above 50 and at most 100"):
        make_observer("percentile_position:percentile=40")


def test_a_percentile_with_power_of_two_scales_rounds_up():
    values = laplace()
    for percentile in (99.0, 99.9):
        observer = make_observer({"name": "Percentile", "percentile": percentile})
        plain = observe_constant(values, observer, QuantSpec("int8")).scale
        found = observe_constant(values, observer, QuantSpec("int8", power_of_two=True)).scale
        assert found == 2.0 ** math.ceil(math.log2(plain))


@pytest.mark.parametrize("spec", SYMMETRIC, ids=str)
def test_covering_scale_clips_nothing(spec):
    values = normal(1000)
    if spec.qmin == 0:
        values = np.abs(values)
    scale = covering_scale(values.min(), values.max(), spec)
    assert np.abs(values - fake_quantize(values, QParams(spec, scale, np.int32(0)))).max() <= 0.5001 * scale
    tighter = np.float32(0.5 * scale)
    assert np.abs(values - fake_quantize(values, QParams(spec, tighter, np.int32(0)))).max() > 0.6 * tighter


FLOATS = st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=False)


@settings(max_examples=60, deadline=None)
@given(values=arrays(np.float32, st.integers(1, 40), elements=FLOATS), data=st.data())
def test_clipping_stays_inside_the_values(values, data):
    name = data.draw(st.sampled_from(["clip_std", "aciq", "octav", "clip_std:0.5"]))
    spec = data.draw(st.sampled_from([*SYMMETRIC, *ASYMMETRIC]))
    low, high = observed(name, values, spec)
    assert min(values.min(), 0) <= low <= high <= max(values.max(), 0)


@settings(max_examples=60, deadline=None)
@given(values=arrays(np.float32, st.integers(1, 40), elements=FLOATS), data=st.data())
def test_power_of_two_observers_give_powers_of_two(values, data):
    name = data.draw(st.sampled_from(["minmax_floor", "pot_mode", "ema_minmax_floor", "min_mse", "no_overflow"]))
    spec = data.draw(st.sampled_from([*SYMMETRIC, *ASYMMETRIC])).replace(power_of_two=True)
    scale = float(observe_constant(values, make_observer(name), spec).scale)
    assert math.frexp(scale)[0] == 0.5
