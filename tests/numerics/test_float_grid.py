"""Floating-point formats: nearest member, saturated, with the bit patterns of the standards."""

import ml_dtypes
import numpy as np
import pytest

from onnxq.errors import SpecError
from onnxq.numerics import float_max, float_storage, from_bits, round_to_float, to_bits

FLOAT_DTYPES = ("fp8_e4m3", "fp8_e5m2", "fp16", "bf16")


def members(dtype: str) -> np.ndarray:
    """Every finite value of the format, ascending."""
    width = 8 * float_storage(dtype).itemsize
    with np.errstate(invalid="ignore"):  # signalling NaNs are among the patterns
        values = from_bits(np.arange(2**width).astype(f"u{width // 8}"), dtype).astype(np.float64)
    return np.unique(values[np.isfinite(values)])


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_the_largest_value_is_the_formats(dtype):
    assert float_max(dtype) == float(ml_dtypes.finfo(float_storage(dtype)).max) == members(dtype)[-1]


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_rounds_to_the_nearest_member(dtype):
    rng = np.random.default_rng(0)
    grid = members(dtype)
    top = min(float_max(dtype), 1e30)
    values = np.concatenate([rng.uniform(-1.1 * top, 1.1 * top, 500), rng.standard_normal(500)]).astype(np.float32)
    rounded = round_to_float(values, dtype).astype(np.float64)
    place = np.clip(np.searchsorted(grid, values), 1, len(grid) - 1)
    best = np.minimum(np.abs(grid[place] - values), np.abs(grid[place - 1] - values))
    np.testing.assert_array_equal(np.abs(rounded - values), best)


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_ties_go_to_the_even_bit_pattern(dtype):
    grid = members(dtype)
    grid = grid[(np.abs(grid) > 1e-30)]  # half-way points of bf16 below this are not float32 numbers
    middle = (grid[:-1] + grid[1:]) / 2
    middle = middle[middle.astype(np.float32) == middle]
    bits = to_bits(round_to_float(middle.astype(np.float32), dtype))
    assert len(bits) > 100
    assert not np.any(bits & 1)


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_saturates_and_keeps_nan(dtype):
    with np.errstate(all="raise"):
        stored = round_to_float(np.array([np.inf, -np.inf, 3.4e38, -3.4e38, np.nan], np.float32), dtype)
    values = stored.astype(np.float32)
    largest = np.float32(float_max(dtype))
    np.testing.assert_array_equal(values, [largest, -largest, largest, -largest, np.nan])


def test_bit_patterns_are_those_of_the_standard():
    ones = np.array([[1.0, -1.0]], np.float32)
    assert to_bits(round_to_float(ones, "fp8_e4m3")).tolist() == [[0x38, 0xB8]]
    assert to_bits(round_to_float(ones, "fp8_e5m2")).tolist() == [[0x3C, 0xBC]]
    assert to_bits(round_to_float(ones, "fp16")).tolist() == [[0x3C00, 0xBC00]]
    assert to_bits(round_to_float(ones, "bf16")).tolist() == [[0x3F80, 0xBF80]]


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_bits_read_back(dtype):
    stored = round_to_float(np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4), dtype)
    back = from_bits(to_bits(stored), dtype)
    assert back.dtype == stored.dtype
    np.testing.assert_array_equal(back, stored)


def test_wrong_formats_are_refused():
    with pytest.raises(SpecError, match="int8 is not a floating-point format"):
        float_max("int8")
    with pytest.raises(SpecError, match="int8 is not a floating-point format"):
        float_storage("int8")
    with pytest.raises(SpecError, match="bit patterns of fp16 are uint16, got uint8"):
        from_bits(np.zeros(2, np.uint8), "fp16")
