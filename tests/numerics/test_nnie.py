"""The logarithmic grid of NNIE: the vendor's function, its ties and ends, and the codes that files hold."""

import math
from decimal import Decimal, getcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq.errors import DataError, SpecError
from onnxq.numerics import dequantize, fake_quantize, nnie_clip, nnie_codes, nnie_table, qparams_from_range, quantize
from onnxq.types import PerChannel, QuantSpec

SPEC = QuantSpec("nnie8")


def by_formula(x, data_max):
    """The function as the documentation of the chip gives it, one value at a time with Python's own arithmetic."""
    z = round(16 * math.log2(data_max)) - 127
    if x >= 2.0 ** (z / 16 - 1):
        return 2.0 ** ((min(max(round(16 * math.log2(x)) - z, 0), 127) + z) / 16)
    if x < -(2.0 ** ((z + 1) / 16 - 1)):
        return -(2.0 ** ((min(max(round(16 * math.log2(-x)) - z, 1), 127) + z) / 16))
    return 0.0


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (0.5, 0.5),
        (0.7, 0.70710678),
        (-0.3, -0.29730178),
        (0.003, 0.00407919),
        (0.0021, 0.00407919),
        (-0.0021, 0.0),
        (1.5, 1.0),
        (-1.5, -1.0),
        (np.inf, 1.0),
        (0.0, 0.0),
        (-0.0, 0.0),
    ],
)
def test_known_values_with_a_range_of_one(value, wanted):
    found = fake_quantize(np.float32([value]), qparams_from_range(-1.0, 1.0, SPEC))
    assert found[0] == pytest.approx(wanted, rel=2e-6)  # eight digits are given


@given(
    st.floats(-1e6, 1e6, width=32),
    st.floats(1e-6, 1e6),
)
def test_every_value_is_what_the_formula_says(value, data_max):
    parameters = qparams_from_range(-data_max, data_max, SPEC)
    found = float(fake_quantize(np.float32([value]), parameters)[0])
    assert found == pytest.approx(by_formula(value, data_max), rel=1e-6)


@pytest.mark.parametrize("steps", [-500, -16, 0, 1, 7, 16, 100, 900])
def test_clip_values_are_legal_and_stay_what_they_are(steps):
    clip = 2.0 ** (steps / 16)
    parameters = qparams_from_range(-clip * 1.02, clip * 0.3, SPEC)
    assert float(parameters.scale) == np.float32(clip)
    again = qparams_from_range(-parameters.scale, parameters.scale, SPEC)
    assert again == parameters
    assert 16 * np.log2(float(nnie_clip(parameters.scale))) == pytest.approx(steps, abs=1e-9)


def test_ranges_of_zero_and_at_the_ends_of_float32_have_a_clip_value():
    assert qparams_from_range(0.0, 0.0, SPEC).scale == 1.0
    assert qparams_from_range(-1e-38, 1e-38, SPEC).scale == 2.0**-62
    assert np.isfinite(qparams_from_range(-3.4e38, 3.4e38, SPEC).scale)


def test_half_of_the_smallest_value_is_positive_and_not_negative():
    """At exactly half of the smallest value the function is defined on one side only (docs: >= and <)."""
    parameters = qparams_from_range(0.0, 2.0 ** (127 / 16), SPEC)  # the smallest positive value is 1
    half = np.float32(0.5)
    assert quantize(np.array([half]), parameters)[0] == 0x00
    assert quantize(np.array([np.nextafter(half, np.float32(0))]), parameters)[0] == 0x80
    parameters = qparams_from_range(0.0, 2.0 ** (126 / 16), SPEC)  # the smallest negative value is -1
    assert quantize(np.array([-half]), parameters)[0] == 0x80
    assert quantize(np.array([np.nextafter(-half, np.float32(-1))]), parameters)[0] == 0x81


def test_codes_are_sign_and_magnitude_and_all_of_them_read_back():
    parameters = qparams_from_range(-3.0, 3.0, SPEC)
    table = nnie_table(parameters.scale)
    assert table.dtype == np.float32
    assert len(np.unique(table)) == 256
    assert table[0x80] == 0
    assert np.array_equal(table[0x81:], -table[0x01:0x80])
    assert table[0x7F] == parameters.scale
    codes = np.arange(256, dtype=np.uint8)
    assert np.array_equal(dequantize(codes, parameters), table)
    assert np.array_equal(quantize(table, parameters), codes)
    assert np.array_equal(fake_quantize(table, parameters), table)


def test_no_float32_number_is_near_a_tie_so_that_every_logarithm_gives_the_same_code():
    getcontext().prec = 40
    nearest = Decimal(1)
    for odd in range(1, 32, 2):
        tie = Decimal(2) ** (Decimal(odd) / 32)
        closest = np.float32(float(tie))
        for candidate in (closest, np.nextafter(closest, np.float32(0)), np.nextafter(closest, np.float32(9))):
            nearest = min(nearest, abs(Decimal(float(candidate)) / tie - 1))
    # 16 * log2(x) is at most 2100, whose float64 neighbours are 5e-13 apart; the distance is 16 / ln 2 times `nearest`.
    assert nearest > Decimal("1e-9")


def test_codes_are_exact_beside_every_boundary():
    getcontext().prec = 40
    clip = 2.0 ** (5 / 16)
    z = 5 - 127
    for k in range(126):
        tie = Decimal(2) ** ((Decimal(k + z) + Decimal("0.5")) / 16)
        below = np.float32(float(tie))
        while Decimal(float(below)) > tie:
            below = np.nextafter(below, np.float32(0))
        above = np.nextafter(below, np.float32(np.inf))
        assert nnie_codes(np.array([below, above]), clip).tolist() == [k, k + 1]


def test_channels_have_their_own_clip_values():
    spec = SPEC.replace(granularity=PerChannel(1))
    x = np.random.default_rng(0).normal(size=(4, 3, 5)).astype(np.float32) * np.float32([[[1.0], [10.0], [0.01]]])
    parameters = qparams_from_range(x.min((0, 2)), x.max((0, 2)), spec)
    found = fake_quantize(x, parameters)
    for channel in range(3):
        alone = qparams_from_range(x[:, channel].min(), x[:, channel].max(), SPEC)
        assert np.array_equal(found[:, channel], fake_quantize(x[:, channel], alone))


def test_nan_and_settings_of_other_formats_are_refused():
    with pytest.raises(DataError, match=r"NaN at index \(1,\)"):
        quantize(np.float32([0, np.nan]), qparams_from_range(-1, 1, SPEC))
    for wrong in ({"symmetric": False}, {"power_of_two": True}, {"rounding": "floor"}, {"quant_max": 100}):
        with pytest.raises(SpecError, match="nnie8"):
            QuantSpec("nnie8", **wrong)


def test_the_error_is_two_percent_of_each_value():
    x = np.random.default_rng(1).normal(size=20_000).astype(np.float32)
    x = x[np.abs(x) > 0.05]
    relative = fake_quantize(x, qparams_from_range(x.min(), x.max(), SPEC)) / x - 1
    assert np.abs(relative).max() <= 2 ** (1 / 32) - 1 + 1e-6
