"""Rounding is exact: the referee is rational arithmetic."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.errors import SpecError
from onnxq.numerics import round_values
from onnxq.types.spec import ROUNDINGS

HALF = Fraction(1, 2)


def exact(value: float, rounding: str) -> int:
    number = Fraction(value)
    sign = -1 if number < 0 else 1
    return {
        "half_even": lambda: round(number),
        "half_up": lambda: math.floor(number + HALF),
        "half_away": lambda: sign * math.floor(abs(number) + HALF),
        "half_to_zero": lambda: sign * math.ceil(abs(number) - HALF),
        "floor": lambda: math.floor(number),
    }[rounding]()


def neighbours_of_ties() -> np.ndarray:
    """Ties k + 0.5, integers, powers of two, and the float32 numbers next to each of them."""
    centres = np.concatenate(
        [np.arange(-300, 300) / 2, 2.0 ** np.arange(-149, 127), -(2.0 ** np.arange(-149, 127)), [8388607.5, 8388609.0]]
    ).astype(np.float32)
    below, above = np.nextafter(centres, np.float32(-np.inf)), np.nextafter(centres, np.float32(np.inf))
    return np.concatenate([centres, below, above])


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_agrees_with_rational_arithmetic_next_to_every_tie(rounding):
    values = neighbours_of_ties()
    rounded = round_values(values, rounding)
    assert rounded.dtype == np.float32
    assert [int(r) for r in rounded] == [exact(float(v), rounding) for v in values]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("rounding", ROUNDINGS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_agrees_with_rational_arithmetic(rounding, dtype, data):
    width = np.dtype(dtype).itemsize * 8
    floats = st.floats(width=width, allow_nan=False, allow_infinity=False)
    values = np.array(data.draw(st.lists(floats, min_size=1, max_size=20)), dtype=dtype)
    rounded = round_values(values, rounding)
    assert rounded.dtype == dtype
    assert [int(r) for r in rounded] == [exact(float(v), rounding) for v in values]


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_leaves_infinity_nan_and_the_input_alone(rounding):
    values = np.array([np.inf, -np.inf, np.nan, 0.5], np.float32)
    before = values.copy()
    with np.errstate(all="raise"):
        rounded = round_values(values, rounding)
    np.testing.assert_array_equal(rounded[:3], before[:3])
    np.testing.assert_array_equal(values, before)


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_accepts_a_single_number(rounding):
    assert round_values(np.float32(7.25), rounding) == 7


def test_an_unknown_rounding_is_named_with_its_neighbour():
    with pytest.raises(SpecError, match=r"unknown rounding 'half_evn'.*Did you mean 'half_even'"):
        round_values(np.zeros(1, np.float32), "half_evn")
