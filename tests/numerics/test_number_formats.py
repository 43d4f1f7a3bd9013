"""What every number format promises, whichever there are."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.numerics import dequantize, fake_quantize, quantize
from onnxq.types import QParams, QuantSpec
from onnxq.types.number_format import name_of_stored, number_format, number_formats

ALL = sorted(number_formats())
UNEVEN = [name for name in ALL if not QuantSpec(name).evenly_spaced and QuantSpec(name).has_scale]


def unit(dtype: str) -> QParams:
    return QParams(QuantSpec(dtype), np.ones(()), np.zeros((), np.int32))


@pytest.mark.parametrize("dtype", ALL)
def test_the_ends_are_numbers_of_the_format_and_nothing_is_beyond(dtype: str) -> None:
    spec = QuantSpec(dtype)
    ends = np.array(spec.ends, np.float32)
    np.testing.assert_array_equal(fake_quantize(ends, unit(dtype)), ends)
    far = fake_quantize(np.float32([-3e38, 3e38]), unit(dtype))
    assert (far >= ends[0]).all()
    assert (far <= ends[1]).all()
    outer = spec.format.ends(spec, rounded=True)
    assert outer[0] <= spec.ends[0] < spec.ends[1] <= outer[1]


@pytest.mark.parametrize("dtype", ALL)
def test_stored_numbers_have_the_type_that_is_said(dtype: str) -> None:
    x = np.linspace(0, 1, 7, dtype=np.float32)
    stored = quantize(x, unit(dtype))
    assert stored.dtype == number_format(dtype).storage
    np.testing.assert_array_equal(dequantize(stored, unit(dtype)), fake_quantize(x, unit(dtype)))


@pytest.mark.parametrize("dtype", UNEVEN)
def test_levels_and_boundaries_are_those_of_rounding(dtype: str) -> None:
    """In the middle between boundary and level is the level, and right below a boundary the one before it."""
    spec = QuantSpec(dtype)
    for sign, side in zip((1, -1), spec.format.sides(spec), strict=True):
        assert (np.diff(side.levels) > 0).all()
        levels = (sign * side.levels).astype(np.float32)
        np.testing.assert_array_equal(fake_quantize(levels, unit(dtype)), levels)
        before = np.concatenate([[0.0], levels[:-1]]).astype(np.float32)
        for factor, wanted in ((1 + 1e-5, levels), (1 - 1e-5, before)):
            at = (sign * side.boundaries * factor).astype(np.float32)
            np.testing.assert_array_equal(fake_quantize(at, unit(dtype)), wanted)


def test_the_default_sides_of_a_format_are_those_of_its_codes() -> None:
    from onnxq.types.number_format import NumberFormat

    spec = QuantSpec("nnie8")
    above, below = NumberFormat.sides(spec.format, spec)
    own_above, own_below = spec.format.sides(spec)
    np.testing.assert_allclose(above.levels, own_above.levels, rtol=1e-6)
    np.testing.assert_allclose(below.levels, own_below.levels, rtol=1e-6)


@pytest.mark.parametrize(
    ("stored", "dtype"),
    [("int8", "int8"), ("uint4", "uint4"), ("float8_e4m3fn", "fp8_e4m3"), ("int32", "int32"), ("uint32", "uint32")],
)
def test_a_type_in_a_file_is_the_format_that_fills_it(stored: str, dtype: str) -> None:
    assert name_of_stored(stored) == dtype
