"""Distances between tensors: known answers, limits, masks, and sums that do not depend on how they were fed."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from onnxq.errors import DataError
from onnxq.numerics import SqnrAccumulator, compare, cosine, max_abs_error, mse, sqnr_db

values = hnp.arrays(np.float32, 30, elements=st.floats(-1e6, 1e6, width=32))


def test_known_answers():
    reference, test = np.array([3.0, 4.0]), np.array([3.0, 4.5])
    assert sqnr_db(reference, test) == pytest.approx(20.0)
    assert mse(reference, test) == 0.125
    assert max_abs_error(reference, test) == 0.5
    assert cosine(reference, test) == pytest.approx(27 / (5 * math.sqrt(29.25)))


def test_noise_of_a_uniform_quantizer_is_about_six_decibels_a_bit():
    x = np.random.default_rng(0).uniform(-1, 1, 100_000)
    for bits in (4, 8, 12):
        step = 2.0 / 2**bits
        assert sqnr_db(x, np.rint(x / step) * step) == pytest.approx(6.02 * bits, abs=0.1)


def test_identical_tensors_have_no_noise():
    for tensor in (np.arange(5.0), np.zeros(5), np.zeros((0, 2))):
        assert sqnr_db(tensor, tensor) == math.inf
        assert max_abs_error(tensor, tensor) == mse(tensor, tensor) == 0.0
    assert cosine(np.zeros(5), np.zeros(5)) == 1.0


def test_a_zero_reference_has_no_signal():
    assert sqnr_db(np.zeros(3), np.array([0.0, 0.0, 1e-20])) == -math.inf
    assert cosine(np.zeros(3), np.ones(3)) == 0.0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_test_value_that_is_not_a_number_is_the_worst_result(bad):
    reference, test = np.arange(4.0), np.array([0.0, bad, 2.0, 3.0])
    assert sqnr_db(reference, test) == -math.inf
    assert max_abs_error(reference, test) == mse(reference, test) == math.inf
    assert math.isnan(cosine(reference, test))
    later = compare(reference, test)
    later.add(reference, reference)
    assert later.value == -math.inf


def test_masks_are_left_out_of_the_sums_and_counted():
    lowest = np.finfo(np.float32).min
    reference = np.array([3.0, 4.0, -np.inf, lowest, np.inf, np.nan, -np.inf, lowest], np.float32)
    same_kind = np.array([3.0, 4.5, lowest, -np.inf, np.inf, np.nan, -np.inf, lowest], np.float32)
    result = compare(reference, same_kind)
    assert result.value == pytest.approx(20.0)
    assert (result.compared, result.excluded, result.mismatched) == (2, 6, 0)


def test_a_finite_value_under_a_mask_is_a_mismatch():
    reference = np.array([1.0, -np.inf, -np.inf, np.inf, np.nan, -3.4e38], np.float32)
    test = np.array([1.0, -12.0, np.inf, np.nan, 0.0, -10.0], np.float32)
    result = compare(reference, test)
    assert result.value == math.inf
    assert (result.compared, result.excluded, result.mismatched) == (1, 5, 5)


@settings(max_examples=100, deadline=None)
@given(reference=values, test=values, cut=st.integers(0, 30))
def test_feeding_in_parts_or_merging_gives_the_same_sums(reference, test, cut):
    whole, parts, left, right = compare(reference, test), SqnrAccumulator(), SqnrAccumulator(), SqnrAccumulator()
    for part, own in ((slice(0, cut), left), (slice(cut, None), right)):
        parts.add(reference[part], test[part])
        own.add(reference[part], test[part])
    left.merge(right)
    for other in (parts, left):
        assert other.value == pytest.approx(whole.value, rel=1e-9, abs=1e-9)
        assert other.cosine == pytest.approx(whole.cosine, rel=1e-9, abs=1e-9)
        assert other.mse == pytest.approx(whole.mse, rel=1e-9)
        assert (other.max_abs_error, other.compared) == (whole.max_abs_error, whole.compared)


@settings(max_examples=100, deadline=None)
@given(reference=values, test=values, factor=st.sampled_from([2.0**-30, 0.5, 4.0, 2.0**40]))
def test_sqnr_does_not_depend_on_the_unit(reference, test, factor):
    scaled = sqnr_db(reference.astype(float) * factor, test.astype(float) * factor)
    assert scaled == pytest.approx(sqnr_db(reference, test), rel=1e-9, abs=1e-9)


def test_integer_half_and_boolean_tensors_can_be_compared():
    assert max_abs_error(np.array([0, 255], np.uint8), np.array([255, 0], np.uint8)) == 255
    assert max_abs_error(np.array([60000], np.float16), np.array([-60000], np.float16)) == 120000
    assert mse(np.array([True, False]), np.array([True, True])) == 0.5


def test_different_shapes_are_refused():
    with pytest.raises(DataError, match=r"cannot compare shapes \(2, 3\) \(reference\) and \(3,\) \(test\)"):
        sqnr_db(np.zeros((2, 3)), np.zeros(3))
