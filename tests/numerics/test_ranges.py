"""Scales and zero points: the rules, their limits, and the ranges that break other tools."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from onnxq.errors import DataError, SpecError
from onnxq.numerics import MIN_SCALE, fake_quantize, next_power_of_two, qparams_from_range, sqnr_db, with_float16_scale
from onnxq.numerics.ranges import with_minimum_scale
from onnxq.types import PerBlock, PerChannel, QParams, QuantSpec

FLOAT_DTYPES = ("fp8_e4m3", "fp8_e5m2", "fp16", "bf16")

SMALL_INTS = [f"{sign}int{bits}" for sign in ("", "u") for bits in range(1, 17)]
finite = st.floats(-(2.0**100), 2.0**100, width=32)


@pytest.mark.parametrize(
    ("spec", "scale"),
    [
        (QuantSpec("int8"), 2.54 / 127),
        (QuantSpec("int8", narrow_range=True), 2.54 / 127),
        (QuantSpec("int4"), 2.54 / 7),
        (QuantSpec("int2"), 2.54 / 1),
        (QuantSpec("int1"), 2.54 / 1),
        (QuantSpec("uint8"), 1.0 / 255),
        (QuantSpec("int8", quant_min=0), 1.0 / 127),
        (QuantSpec("int8", quant_min=-64, quant_max=63), 2.54 / 63),
        (QuantSpec("uint8", symmetric=False), 3.54 / 255),
        (QuantSpec("int16", symmetric=False), 3.54 / 65535),
        (QuantSpec("fp8_e4m3"), 2.54 / 448),
        (QuantSpec("fp8_e5m2"), 2.54 / 57344),
        (QuantSpec("fp16"), 1.0),
        (QuantSpec("bf16"), 1.0),
    ],
    ids=str,
)
def test_scale_of_each_kind_of_format(spec, scale):
    qparams = qparams_from_range(-2.54, 1.0, spec)
    assert qparams.scale.dtype == np.float32
    assert qparams.scale == np.float32(scale)


def test_asymmetric_zero_point_puts_the_low_end_at_the_lowest_code():
    assert qparams_from_range(-1.0, 3.0, QuantSpec("uint8", symmetric=False)).zero_point == 64
    assert qparams_from_range(-1.0, 3.0, QuantSpec("int8", symmetric=False)).zero_point == -64


@pytest.mark.parametrize(("low", "high", "zero_point"), [(2.0, 5.0, 0), (-5.0, -2.0, 255)])
def test_a_range_is_widened_to_zero(low, high, zero_point):
    qparams = qparams_from_range(low, high, QuantSpec("uint8", symmetric=False))
    assert qparams.scale == np.float32(5.0 / 255)
    assert qparams.zero_point == zero_point


@settings(max_examples=300, deadline=None)
@given(a=finite, b=finite, dtype=st.sampled_from(SMALL_INTS), symmetric=st.booleans(), power_of_two=st.booleans())
def test_both_ends_are_represented_to_within_a_step(a, b, dtype, symmetric, power_of_two):
    low, high = min(a, b), max(a, b)
    spec = QuantSpec(dtype, symmetric=symmetric, power_of_two=power_of_two)
    qparams = qparams_from_range(low, high, spec)
    assume(not (symmetric and (not spec.signed or spec.bits == 1)))  # one-sided formats cannot hold both ends
    ends = np.array([low, high], np.float32)
    error = np.abs(fake_quantize(ends, qparams) - ends.astype(np.float64))
    # Half a step for the value, half a step for a rounded zero point, and the float32 rounding of the products.
    assert np.all(error <= float(qparams.scale) * 1.0001 + np.abs(ends) * 2.0**-20)


@settings(max_examples=200, deadline=None)
@given(a=st.floats(-3.4e38, 3.4e38), b=st.floats(-3.4e38, 3.4e38), dtype=st.sampled_from([*SMALL_INTS, *FLOAT_DTYPES]))
def test_every_finite_range_gives_legal_parameters(a, b, dtype):
    for spec in (QuantSpec(dtype), QuantSpec(dtype, symmetric=dtype in FLOAT_DTYPES)):
        qparams = qparams_from_range(min(a, b), max(a, b), spec)
        assert MIN_SCALE <= qparams.scale < np.inf


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int4", "int16", "fp8_e4m3"])
@pytest.mark.parametrize("low", [0.0, -0.0])
def test_a_dead_channel_gets_the_scale_of_a_range_of_one(dtype, low):
    spec = QuantSpec(dtype, granularity=PerChannel(0))
    qparams = qparams_from_range(np.array([low, -2.0]), np.array([0.0, 2.0]), spec)
    assert qparams.scale[0] == np.float32(qparams.scale[1] / 2)
    assert qparams.zero_point[0] == 0


@given(finite, finite, st.sampled_from(SMALL_INTS + list(FLOAT_DTYPES)), st.booleans())
def test_one_range_has_the_bits_that_it_has_among_others(a, b, dtype, symmetric):
    assume(symmetric or dtype in SMALL_INTS[1:])
    try:
        spec = QuantSpec(dtype, symmetric=symmetric)
    except SpecError:
        assume(False)
    low, high = min(a, b), max(a, b)
    alone = qparams_from_range(low, high, spec)
    among = (
        qparams_from_range([low, 0.0], [high, 1.0], spec.replace(granularity=PerChannel(0)))
        if spec.has_scale
        else alone
    )
    assert alone.scale.tobytes() == np.ravel(among.scale)[:1].tobytes()
    assert int(alone.zero_point) == int(np.ravel(among.zero_point)[0])


def test_a_dead_asymmetric_range_keeps_zero_exact():
    qparams = qparams_from_range(0.0, 0.0, QuantSpec("uint8", symmetric=False))
    assert (qparams.scale, qparams.zero_point) == (np.float32(1 / 255), 0)


def test_negative_values_alone_are_a_dead_range_for_a_nonnegative_format():
    assert qparams_from_range(-3.0, -1.0, QuantSpec("uint8")).scale == np.float32(1 / 255)


@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("magnitude", [1e-9, 1e-12, 1e20])
def test_tiny_and_huge_weights_keep_their_precision(dtype, magnitude):
    weight = (np.random.default_rng(0).standard_normal(5000) * magnitude).astype(np.float32)
    qparams = qparams_from_range(weight.min(), weight.max(), QuantSpec(dtype))
    assert sqnr_db(weight, fake_quantize(weight, qparams)) > {"int8": 38, "int16": 85}[dtype]


def test_scales_below_the_floor_are_lifted_and_their_products_are_normal_numbers():
    scale = qparams_from_range(-1e-38, 1e-38, QuantSpec("int8")).scale
    assert scale == np.float32(MIN_SCALE)
    assert scale * scale >= np.finfo(np.float32).tiny


def test_power_of_two_scales_are_the_smallest_that_do_not_clip():
    spec = QuantSpec("int8", power_of_two=True)
    assert qparams_from_range(-127 / 8, 0.0, spec).scale == 2.0**-3
    assert qparams_from_range(0.0, np.nextafter(127 / 8, 100), spec).scale == 2.0**-2
    assert qparams_from_range(-1.0, 1.0, spec).scale == 2.0**-6


@settings(max_examples=200, deadline=None)
@given(st.floats(1e-300, 1e300))
def test_next_power_of_two_is_tight(value):
    power = float(next_power_of_two(np.array(value)))
    assert math.frexp(power)[0] == 0.5
    assert power / 2 < value <= power


def test_channels_and_blocks_are_computed_as_if_each_were_alone():
    rng = np.random.default_rng(7)
    low, high = -rng.uniform(0, 2, (3, 4)), rng.uniform(0, 2, (3, 4))
    spec = QuantSpec("uint8", symmetric=False, granularity=PerBlock(0, 8))
    qparams = qparams_from_range(low, high, spec)
    alone = QuantSpec("uint8", symmetric=False)
    for where in np.ndindex(3, 4):
        single = qparams_from_range(low[where], high[where], alone)
        assert (qparams.scale[where], qparams.zero_point[where]) == (single.scale, single.zero_point)


@pytest.mark.parametrize(("low", "high"), [(np.nan, 1.0), (0.0, np.inf), (-np.inf, 0.0)])
def test_a_range_that_is_not_finite_is_refused(low, high):
    with pytest.raises(DataError, match="a range must be finite"):
        qparams_from_range(low, high, QuantSpec("int8"))


def test_an_inverted_range_is_refused():
    with pytest.raises(DataError, match="low end lies above its high end"):
        qparams_from_range(1.0, -1.0, QuantSpec("int8"))


@settings(max_examples=100, deadline=None)
@given(st.floats(2.0**-40, 2.0**15, width=32))
def test_float16_scales_are_exact_and_never_smaller(scale):
    half = with_float16_scale(QParams(QuantSpec("int8"), scale, 0)).scale
    assert half == half.astype(np.float16)
    assert np.float32(scale) <= half <= max(np.float32(scale) * (1 + 2.0**-10), scale + 2.0**-24)


def test_a_scale_beyond_float16_is_refused():
    with pytest.raises(SpecError, match=r"beyond float16 \(65504\)"):
        with_float16_scale(QParams(QuantSpec("int8"), 7e4, 0))


def test_scales_of_either_sign_put_the_lowest_number_where_the_largest_value_is():
    spec = QuantSpec("int4", signed_scale=True, granularity=PerChannel(0))
    found = qparams_from_range(np.array([-8.0, -1.0, -4.0, 0.0]), np.array([2.0, 4.0, 4.0, 0.0]), spec)
    assert found.scale.tolist() == [1.0, -0.5, 0.5, 0.125]
    values = np.array([[-8.0, 2.0], [-1.0, 4.0], [-4.0, 3.5], [0.0, 0.0]], np.float32)
    assert fake_quantize(values, found).tolist() == values.tolist()
    assert with_minimum_scale(found, 0.75).scale.tolist() == [1.0, -0.75, 0.75, 0.75]
    narrow = with_float16_scale(QParams(spec, np.array([0.1, -0.1], np.float32), np.zeros(2, np.int32)))
    assert narrow.scale[0] == -narrow.scale[1] >= np.float32(0.1)
