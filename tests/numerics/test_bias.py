"""Bias scales follow from input and weight, and weights make room where the bias would leave int32."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from onnxq.errors import DataError, SpecError
from onnxq.numerics import (
    BIAS_LIMIT,
    dequantize,
    derived_bias_scale,
    fake_quantize,
    qparams_from_range,
    quantize,
    sqnr_db,
    widen_weight_scale_for_bias,
)
from onnxq.types import PerBlock, PerChannel, QParams, QuantSpec

PER_CHANNEL = QuantSpec("int8", granularity=PerChannel(0))


def test_bias_scale_is_the_float32_product():
    weight = QParams(PER_CHANNEL, np.array([0.1, 0.3, 7e-9]), 0)
    scale = derived_bias_scale(QParams(QuantSpec("uint8"), 0.7, 0), weight)
    assert scale.dtype == np.float32
    np.testing.assert_array_equal(scale, np.float32(0.7) * np.array([0.1, 0.3, 7e-9], np.float32))


def test_bias_scale_needs_one_input_scale_and_no_blocks():
    one = QParams(QuantSpec("int8"), 1.0, 0)
    with pytest.raises(SpecError, match="input quantized per tensor"):
        derived_bias_scale(QParams(PER_CHANNEL, np.ones(3), 0), one)
    with pytest.raises(SpecError, match="per block"):
        derived_bias_scale(one, QParams(QuantSpec("int4", granularity=PerBlock(0, 2)), np.ones((2, 2)), 0))


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_a_bias_scale_outside_float32_is_refused(size):
    tiny = QParams(QuantSpec("int8"), size, 0)
    with pytest.raises(SpecError, match="leaves float32"):
        derived_bias_scale(tiny, tiny)


@pytest.mark.parametrize("power_of_two", [False, True])
@settings(max_examples=200, deadline=None)
@given(
    bias=hnp.arrays(np.float32, 6, elements=st.floats(-1e6, 1e6, width=32)),
    exponents=hnp.arrays(np.int64, 6, elements=st.integers(-40, 10)),
    input_scale=st.floats(2.0**-30, 2.0**10, width=32),
)
def test_widened_scales_are_just_large_enough(power_of_two, bias, exponents, input_scale):
    scale = (2.0**exponents).astype(np.float32)
    widened = widen_weight_scale_for_bias(bias, input_scale, scale, power_of_two=power_of_two)
    assert widened.dtype == np.float32
    assert np.all(widened >= scale)
    steps = np.abs(bias).astype(np.float64) / (input_scale * widened.astype(np.float64))
    assert np.all(steps <= BIAS_LIMIT)
    changed = widened > scale
    floor = BIAS_LIMIT / 2 if power_of_two else BIAS_LIMIT * (1 - 1e-6)
    assert np.all(steps[changed] > floor * 0.999999)
    if power_of_two:
        assert np.all(np.frexp(widened)[0] == 0.5)


def test_scales_stay_untouched_where_the_bias_fits():
    scale = np.array([0.01, 1e-12, 0.02], np.float32)
    widened = widen_weight_scale_for_bias(np.array([5.0, 5.0, 0.0]), 0.01, scale)
    assert widened[0] == scale[0]
    assert widened[1] > scale[1]
    assert widened[2] == scale[2]


def test_one_scale_for_all_channels_follows_the_largest_bias():
    widened = widen_weight_scale_for_bias(np.array([1.0, -8.0]), 0.01, np.float32(1e-12))
    assert widened.shape == ()
    assert widened == pytest.approx(8.0 / 0.01 / BIAS_LIMIT, rel=1e-6)


def test_tiny_weights_next_to_a_large_bias_keep_the_output():
    rng = np.random.default_rng(8)
    x = rng.standard_normal((64, 32)).astype(np.float32)
    weight = (rng.standard_normal((16, 32)) * 1e-9).astype(np.float32)
    weight[3] = rng.standard_normal(32)
    bias = np.full(16, 5.0, np.float32)
    x_q = qparams_from_range(x.min(), x.max(), QuantSpec("uint8", symmetric=False))
    w_q = qparams_from_range(weight.min(1), weight.max(1), PER_CHANNEL)
    w_q = QParams(PER_CHANNEL, widen_weight_scale_for_bias(bias, x_q.scale, w_q.scale), 0)
    b_q = QParams(QuantSpec("int32", granularity=PerChannel(0)), derived_bias_scale(x_q, w_q), 0)
    restored = dequantize(quantize(bias, b_q), b_q)
    assert np.all(np.abs(restored - bias) <= b_q.scale / 2 + 1e-6)  # half a step, and float32 at 5
    reference = x @ weight.T + bias
    quantized = fake_quantize(x, x_q) @ fake_quantize(weight, w_q).T + restored
    for channel in range(16):
        assert sqnr_db(reference[:, channel], quantized[:, channel]) > 30


def test_unusable_biases_are_refused():
    with pytest.raises(DataError, match="NaN or infinity"):
        widen_weight_scale_for_bias(np.array([np.nan]), 1.0, np.array([1.0], np.float32))
    with pytest.raises(SpecError, match=r"got \(2,\) biases and \(3,\) scales"):
        widen_weight_scale_for_bias(np.zeros(2), 1.0, np.ones(3, np.float32))
    with pytest.raises(DataError, match="cannot be an integer"):
        widen_weight_scale_for_bias(np.array([3e38]), 2.0**-62, np.array([1.0], np.float32))


def test_a_narrower_bias_needs_a_larger_weight_scale() -> None:
    scale = widen_weight_scale_for_bias(np.array([100.0]), 0.01, np.array([1e-3], np.float32), limit=2**19 - 1)
    assert 100.0 / (np.float64(np.float32(0.01)) * scale[0]) <= 2**19 - 1
    assert scale[0] > 1e-2
