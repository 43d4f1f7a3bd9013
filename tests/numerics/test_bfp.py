"""Block floating point: the formula one block at a time, its borders, and blocks along every axis."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from onnxq.errors import SpecError
from onnxq.numerics import (
    block_steps,
    dequantize,
    fake_quantize,
    float_max,
    qparams_from_range,
    quantize,
    round_to_blocks,
    round_to_float,
    storage_dtype,
)
from onnxq.numerics.chunks import CHUNK_ELEMENTS
from onnxq.types import PerBlock, PerChannel, QParams, QuantSpec
from onnxq.types.spec import why_no_derived_bias

SPEC = QuantSpec("bfp16")
ONE = qparams_from_range(-1.0, 1.0, SPEC)
EIGHT = PerBlock(0, 8)


def by_formula(block: list[float]) -> list[float]:
    """One block with exact arithmetic: Python's own rounding of a fraction is half to even."""
    finite = [abs(x) for x in block if math.isfinite(x)]
    largest = max(finite, default=0.0)
    exponent = max(math.frexp(largest)[1] - 1, -127) if largest else -127
    step = Fraction(2) ** (exponent - 6)
    steps = [max(-127, min(127, round(Fraction(x) / step))) if math.isfinite(x) else x for x in block]
    return [float(n * step) if math.isfinite(x) else x for n, x in zip(steps, block, strict=True)]


@given(st.lists(st.floats(width=32), min_size=1, max_size=8))
def test_a_block_is_what_the_formula_says(block: list[float]) -> None:
    found = round_to_blocks(np.float32(block), EIGHT)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.float32(by_formula(block)))


@pytest.mark.parametrize(
    ("block", "wanted"),
    [
        ([1.0, 0.5, 0.25], [1.0, 0.5, 0.25]),
        ([1.0, 1 / 128, 3 / 128, -5 / 128], [1.0, 0.0, 2 / 64, -2 / 64]),  # halves go to even
        ([127 / 64, 1.99], [127 / 64, 127 / 64]),
        ([1.9999999, -1.9999999], [127 / 64, -127 / 64]),  # 128 steps would need another exponent
        ([2.0, 1 / 32, 1 / 64], [2.0, 1 / 32, 0.0]),
        ([1e6, 1.0], [1e6 // 8192 * 8192, 0.0]),  # a large neighbour takes the small ones with it
        ([0.0, -0.0], [0.0, 0.0]),
        ([np.inf, 1.0, 1 / 64], [np.inf, 1.0, 1 / 64]),  # infinities and NaN do not count for the exponent
        ([np.nan, -np.inf, 3.0], [np.nan, -np.inf, 3.0]),
        ([2.0**-126, 2.0**-133], [2.0**-126, 0.0]),
        ([2.0**-127, 2.0**-133, 2.0**-134], [2.0**-127, 2.0**-133, 0.0]),
        ([2.0**-149], [0.0]),
        ([3.4028235e38, 1.0], [127 * 2.0**121, 0.0]),
    ],
)
def test_known_blocks(block: list[float], wanted: list[float]) -> None:
    found = round_to_blocks(np.float32(block), EIGHT)
    np.testing.assert_array_equal(found, np.float32(wanted))
    assert not np.signbit(found[found == 0]).any()


def test_the_step_is_exact_for_every_exponent() -> None:
    powers = np.ldexp(np.float32(1), np.arange(-149, 128))
    exponents = np.maximum(np.arange(-149, 128), -127)
    wanted = np.ldexp(1.0, exponents - 6)
    np.testing.assert_array_equal(block_steps(powers), wanted)
    above, below = np.nextafter(powers, np.float32(np.inf)), np.nextafter(powers, np.float32(0))
    np.testing.assert_array_equal(block_steps(above[30:]), wanted[30:])
    np.testing.assert_array_equal(block_steps(below), np.ldexp(1.0, np.maximum(exponents - 1, -127) - 6))
    assert block_steps(np.float32([0.0]))[0] == 2.0**-133


def test_the_largest_number_is_the_formats() -> None:
    assert float_max("bfp16") == round_to_blocks(np.float32([3.4028235e38]), EIGHT)[0]


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((20,), 0), ((3, 20), 1), ((3, 20), 0), ((20, 3, 5), 0), ((2, 9, 4, 5), 1), ((2, 3, 4, 5, 17), -1), ((2, 8), -2)],
)
@pytest.mark.parametrize("size", [2, 8, 16])
def test_neighbours_along_the_axis_share_an_exponent_and_nobody_else_does(
    shape: tuple[int, ...], axis: int, size: int
) -> None:
    rng = np.random.default_rng(0)
    x = (rng.normal(size=shape) * np.exp2(rng.integers(-20, 20, shape))).astype(np.float32)
    found = round_to_blocks(x, PerBlock(axis, size))
    lines, results = np.moveaxis(x, axis, -1), np.moveaxis(found, axis, -1)
    for index in np.ndindex(lines.shape[:-1]):
        for start in range(0, lines.shape[-1], size):
            block = lines[index][start : start + size]
            np.testing.assert_array_equal(results[index][start : start + size], by_formula(block.tolist()))


@pytest.mark.parametrize("axis", [-3, 0, 1, 5])
def test_a_tensor_with_one_axis_or_none_has_its_blocks_there(axis: int) -> None:
    x = np.random.default_rng(1).normal(size=20).astype(np.float32)
    parameters = QParams(QuantSpec("bfp16", granularity=PerBlock(axis, 8)), np.float32(1), 0)
    np.testing.assert_array_equal(fake_quantize(x, parameters), round_to_blocks(x, EIGHT))
    single = np.asarray(x[0])
    assert fake_quantize(single, parameters).shape == ()
    assert fake_quantize(single, parameters) == round_to_blocks(x[:1], EIGHT)[0]


def test_an_axis_that_is_not_there_is_named() -> None:
    parameters = QParams(QuantSpec("bfp16", granularity=PerBlock(2, 8)), np.float32(1), 0)
    with pytest.raises(SpecError, match="axis 2 is outside a tensor of rank 2"):
        fake_quantize(np.zeros((2, 2), np.float32), parameters)


@given(arrays.arrays(np.float32, arrays.array_shapes(max_dims=4, max_side=12), elements=st.floats(width=32)))
def test_stored_values_are_bfloat16_and_lose_nothing(x: np.ndarray) -> None:
    stored = quantize(x, ONE)
    assert stored.dtype == storage_dtype(SPEC) == ml_dtypes.bfloat16
    wanted = round_to_blocks(x, PerBlock(1, 8))
    np.testing.assert_array_equal(stored.astype(np.float32), wanted)
    np.testing.assert_array_equal(dequantize(stored, ONE), wanted)
    np.testing.assert_array_equal(fake_quantize(x, ONE), wanted)


@given(arrays.arrays(np.float32, (3, 11), elements=st.floats(-(2.0**100), 2.0**100, width=32)))
def test_values_of_the_format_stay_what_they_are(x: np.ndarray) -> None:
    once = fake_quantize(x, ONE)
    np.testing.assert_array_equal(fake_quantize(once, ONE), once)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_large_array_in_pieces_is_the_array_at_once(axis: int) -> None:
    shape = (37, 101, 83)
    assert np.prod(shape) > CHUNK_ELEMENTS
    x = np.random.default_rng(2).normal(size=shape).astype(np.float32)
    spec = QuantSpec("bfp16", granularity=PerBlock(axis, 8))
    found = fake_quantize(x, qparams_from_range(-1.0, 1.0, spec))
    np.testing.assert_array_equal(found, round_to_blocks(x, PerBlock(axis, 8)))
    other = np.moveaxis(x, axis, 0)  # the same along another axis
    np.testing.assert_array_equal(np.moveaxis(found, axis, 0), round_to_blocks(other, EIGHT))


def test_the_parameters_are_one_scale_of_one() -> None:
    assert (ONE.scale.shape, float(ONE.scale), int(ONE.zero_point)) == ((), 1.0, 0)
    assert qparams_from_range(np.zeros(5), np.ones(5), SPEC) == ONE
    assert QParams.from_json(ONE.to_json()) == ONE
    with pytest.raises(SpecError, match="bfp16 has no scale"):
        QParams(SPEC, np.float32(0.5), 0)
    with pytest.raises(SpecError, match="one number"):
        QParams(SPEC, np.ones((2, 3), np.float32), 0)


def test_a_single_value_has_no_nearest_number() -> None:
    with pytest.raises(SpecError, match="its neighbours decide"):
        round_to_float(np.float32([1.0]), "bfp16")


def test_an_int32_bias_needs_scales_to_derive_its_own_from() -> None:
    int8 = QuantSpec("int8")
    assert why_no_derived_bias(int8, QuantSpec("int8", granularity=PerChannel(0))) is None
    assert why_no_derived_bias(QuantSpec("fp8_e4m3"), QuantSpec("fp8_e4m3")) is None
    for floating in ("fp16", "bf16", "bfp16"):
        assert f"the input is {floating}" in str(why_no_derived_bias(QuantSpec(floating), int8))
        assert f"the weight is {floating}" in str(why_no_derived_bias(int8, QuantSpec(floating)))
    assert "per channel" in str(why_no_derived_bias(QuantSpec("int8", granularity=PerChannel(1)), int8))
    assert "per block" in str(why_no_derived_bias(int8, QuantSpec("int4", granularity=PerBlock(0, 32))))
