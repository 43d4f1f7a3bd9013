"""Properties of quantize, dequantize and fake_quantize that hold for every format and granularity."""

import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from onnxq.errors import DataError, SpecError
from onnxq.numerics import chunks, dequantize, fake_quantize, qparams_from_range, quantize, storage_dtype
from onnxq.types import PerBlock, PerChannel, PerTensor, QParams, QuantSpec
from onnxq.types.spec import ROUNDINGS

FLOAT_DTYPES = ("fp8_e4m3", "fp8_e5m2", "fp16", "bf16")

SMALL_INTS = [f"{sign}int{bits}" for sign in ("", "u") for bits in range(1, 17)]
HALF_ROUNDINGS = [rounding for rounding in ROUNDINGS if rounding != "floor"]

ordinary = hnp.arrays(np.float32, st.integers(1, 40), elements=st.floats(-1000, 1000, width=32))
scales = st.floats(2.0**-10, 2.0**10, width=32)


@st.composite
def parameters(draw, dtypes=SMALL_INTS, roundings=HALF_ROUNDINGS):
    """Per-tensor parameters of any integer format."""
    spec = QuantSpec(
        draw(st.sampled_from(dtypes)), symmetric=draw(st.booleans()), rounding=draw(st.sampled_from(roundings))
    )
    zero_point = 0 if spec.symmetric else draw(st.integers(spec.qmin, spec.qmax))
    return QParams(spec, draw(scales), zero_point)


@settings(max_examples=200, deadline=None)
@given(x=ordinary, qparams=parameters())
def test_fake_quantize_is_idempotent(x, qparams):
    once = fake_quantize(x, qparams)
    np.testing.assert_array_equal(fake_quantize(once, qparams), once)


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
@settings(max_examples=50, deadline=None)
@given(x=ordinary, exponent=st.integers(-8, 8))
def test_fake_quantize_to_a_float_format_is_idempotent(dtype, x, exponent):
    qparams = QParams(QuantSpec(dtype), 2.0**exponent, 0)
    once = fake_quantize(x, qparams)
    np.testing.assert_array_equal(fake_quantize(once, qparams), once)


@settings(max_examples=100, deadline=None)
@given(x=ordinary, qparams=parameters(roundings=ROUNDINGS))
def test_fake_quantize_is_dequantize_of_quantize(x, qparams):
    stored = quantize(x, qparams)
    assert stored.dtype == storage_dtype(qparams.spec)
    faked = fake_quantize(x, qparams)
    assert faked.dtype == np.float32
    assert faked.tobytes() == dequantize(stored, qparams).tobytes()


@settings(max_examples=100, deadline=None)
@given(x=ordinary, qparams=parameters(roundings=ROUNDINGS))
def test_quantize_is_monotone_and_inside_the_range(x, qparams):
    stored = quantize(np.sort(x), qparams).astype(int)
    assert np.all(np.diff(stored) >= 0)
    assert qparams.spec.qmin <= stored.min()
    assert stored.max() <= qparams.spec.qmax


@settings(max_examples=200, deadline=None)
@given(x=ordinary, qparams=parameters())
def test_error_inside_the_range_is_at_most_half_a_step(x, qparams):
    scale, zero_point = float(qparams.scale), int(qparams.zero_point)
    low, high = (qparams.spec.qmin - zero_point) * scale, (qparams.spec.qmax - zero_point) * scale
    inside = x[(x >= low) & (x <= high)].astype(np.float64)
    error = np.abs(fake_quantize(inside, qparams) - inside)
    # float32 division and product each round once: relative 2^-24 of the value.
    assert np.all(error <= scale / 2 + np.abs(inside) * 2.0**-22)


@pytest.mark.parametrize("dtype", [*SMALL_INTS, "int32", *FLOAT_DTYPES])
def test_zero_maps_to_zero_exactly(dtype):
    spec = QuantSpec(dtype)
    zero_points = [0] if not spec.evenly_spaced or dtype == "int32" else [spec.qmin, 0, spec.qmax]
    for zero_point in zero_points:
        qparams = QParams(spec.replace(symmetric=zero_point == 0), 0.3, zero_point)
        np.testing.assert_array_equal(fake_quantize(np.array([0.0, -0.0], np.float32), qparams), [0.0, 0.0])


@pytest.mark.parametrize("dtype", SMALL_INTS)
def test_every_integer_of_the_format_survives_a_round_trip(dtype):
    spec = QuantSpec(dtype)
    codes = np.unique(np.linspace(spec.qmin, spec.qmax, min(spec.qmax - spec.qmin + 1, 4096)).astype(np.int32))
    for qparams in (QParams(spec, 0.1, 0), QParams(spec.replace(symmetric=False), 0.1, spec.qmin)):
        np.testing.assert_array_equal(quantize(dequantize(codes, qparams), qparams), codes)


@pytest.mark.parametrize("dtype", [*SMALL_INTS, "int32"])
def test_infinities_and_huge_values_saturate_at_the_ends(dtype):
    spec = QuantSpec(dtype)
    values = np.array([np.inf, 3.4e38, -3.4e38, -np.inf], np.float32)
    with np.errstate(all="raise"):
        stored = quantize(values, QParams(spec, 1e-3, 0))
    assert stored.tolist() == [spec.qmax, spec.qmax, spec.qmin, spec.qmin]


def test_int32_saturates_at_its_own_ends_not_at_those_of_float32():
    qparams = QParams(QuantSpec("int32"), 1.0, 0)
    values = np.array([2.0**31, 2.0**31 - 128, -(2.0**31), -(2.0**31) - 256, 16777217.0], np.float32)
    assert quantize(values, qparams).tolist() == [2**31 - 1, 2**31 - 128, -(2**31), -(2**31), 16777216]


def test_int32_divides_in_double_precision():
    bias, scale = np.float32(5.0), np.float32(3.7e-9)
    stored = quantize(np.array([bias]), QParams(QuantSpec("int32"), scale, 0))
    assert stored[0] == round(float(bias) / float(scale))


def test_explicit_limits_bind():
    spec = QuantSpec("int8", quant_min=-64, quant_max=63)
    assert quantize(np.array([-1e6, 1e6], np.float32), QParams(spec, 1.0, 0)).tolist() == [-64, 63]
    narrow = QuantSpec("int8", narrow_range=True)
    assert quantize(np.array([-1e6, 1e6], np.float32), QParams(narrow, 1.0, 0)).tolist() == [-127, 127]


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("int1", np.int8), ("uint4", np.uint8), ("int8", np.int8), ("uint9", np.uint16), ("int16", np.int16),
     ("int32", np.int32), ("fp8_e4m3", ml_dtypes.float8_e4m3fn), ("fp8_e5m2", ml_dtypes.float8_e5m2),
     ("fp16", np.float16), ("bf16", ml_dtypes.bfloat16)],
)  # fmt: skip
def test_storage_is_the_smallest_container(dtype, expected):
    assert storage_dtype(QuantSpec(dtype)) == np.dtype(expected)
    assert quantize(np.ones(3, np.float32), QParams(QuantSpec(dtype), 1.0, 0)).dtype == np.dtype(expected)


@pytest.mark.parametrize("dtype", ["int4", "uint8", "int16", "fp8_e4m3"])
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_per_channel_is_a_loop_over_channels(dtype, axis):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((5, 6, 7)).astype(np.float32) * 3
    channels = np.moveaxis(x, axis, 0)
    spec = QuantSpec(dtype, symmetric=dtype != "uint8", granularity=PerChannel(axis))
    flat = channels.reshape(len(channels), -1)
    qparams = qparams_from_range(flat.min(1), flat.max(1), spec)
    single = spec.replace(granularity=PerTensor())
    for i, channel in enumerate(channels):
        own = QParams(single, qparams.scale[i], qparams.zero_point[i])
        assert np.moveaxis(quantize(x, qparams), axis, 0)[i].tobytes() == quantize(channel, own).tobytes()
        np.testing.assert_array_equal(np.moveaxis(fake_quantize(x, qparams), axis, 0)[i], fake_quantize(channel, own))


@pytest.mark.parametrize("dtype", ["int4", "uint8", "fp8_e5m2"])
@pytest.mark.parametrize(("axis", "size"), [(0, 4), (1, 3), (-1, 32), (2, 1), (0, 100)])
def test_per_block_is_a_loop_over_blocks_and_the_last_may_be_short(dtype, axis, size):
    rng = np.random.default_rng(2)
    x = rng.standard_normal((10, 4, 65)).astype(np.float32)
    spec = QuantSpec(dtype, symmetric=dtype != "uint8", granularity=PerBlock(axis, size))
    shape = spec.granularity.scale_shape(x.shape)
    zero_point = 0 if spec.symmetric else rng.integers(0, 256, shape)
    qparams = QParams(spec, rng.uniform(0.01, 0.2, shape), zero_point)
    stored, single = quantize(x, qparams), spec.replace(granularity=PerTensor())
    restored = dequantize(stored, qparams)
    for where in np.ndindex(*shape):
        part = tuple(
            slice(i * size, (i + 1) * size) if d == axis % x.ndim else slice(i, i + 1) for d, i in enumerate(where)
        )
        own = QParams(single, qparams.scale[where], qparams.zero_point[where])
        assert stored[part].tobytes() == quantize(x[part], own).tobytes()
        np.testing.assert_array_equal(restored[part], dequantize(stored[part], own))


@pytest.mark.parametrize(
    "granularity", [PerTensor(), PerChannel(0), PerChannel(1), PerBlock(0, 7), PerBlock(1, 1000)], ids=str
)
def test_results_do_not_depend_on_how_the_array_is_cut(granularity, monkeypatch):
    rng = np.random.default_rng(3)
    x = rng.standard_normal((23, 2500)).astype(np.float32)
    spec = QuantSpec("uint8", symmetric=False, granularity=granularity)
    shape = granularity.scale_shape(x.shape)
    qparams = QParams(spec, rng.uniform(0.01, 0.1, shape), rng.integers(0, 256, shape))
    whole = quantize(x, qparams), fake_quantize(x, qparams)
    monkeypatch.setattr("onnxq.numerics.affine.chunks", lambda shape: chunks(shape, 1300))
    np.testing.assert_array_equal(quantize(x, qparams), whole[0])
    np.testing.assert_array_equal(fake_quantize(x, qparams), whole[1])
    np.testing.assert_array_equal(dequantize(whole[0], qparams), whole[1])


def test_a_large_memory_map_is_quantized_with_small_temporaries(tmp_path):
    shape = (4096, 2048)  # 32 MB
    np.lib.format.open_memmap(tmp_path / "weight.npy", mode="w+", dtype=np.float32, shape=shape)[:] = 0.25
    weight = np.load(tmp_path / "weight.npy", mmap_mode="r")
    spec = QuantSpec("int8", granularity=PerChannel(0))
    qparams = QParams(spec, np.full(shape[0], 0.125), 0)
    out = np.empty(shape, np.int8)
    tracemalloc.start()
    quantize(weight, qparams, out=out)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.all(out == 2)
    assert peak < 12 * 2**20


@pytest.mark.parametrize("layout", ["transposed", "strided", "big_endian", "float64", "float16", "bfloat16", "integer"])
def test_any_layout_and_number_type_gives_the_same_numbers(layout):
    x = np.arange(-24, 24, dtype=np.float32).reshape(6, 8)
    qparams = QParams(QuantSpec("int8", granularity=PerChannel(1)), np.linspace(0.5, 2, 8), 0)
    other = {
        "transposed": lambda: np.asfortranarray(x),
        "strided": lambda: np.repeat(x, 2, axis=0)[::2],
        "big_endian": lambda: x.astype(">f4"),
        "float64": lambda: x.astype(np.float64),
        "float16": lambda: x.astype(np.float16),
        "bfloat16": lambda: x.astype(ml_dtypes.bfloat16),
        "integer": lambda: x.astype(np.int64),
    }[layout]()
    np.testing.assert_array_equal(quantize(other, qparams), quantize(x, qparams))


def test_single_numbers_and_empty_arrays_work():
    qparams = QParams(QuantSpec("int8"), 0.5, 0)
    assert quantize(np.float32(3.0), qparams) == 6
    assert fake_quantize(np.zeros((0, 3), np.float32), qparams).shape == (0, 3)


@pytest.mark.parametrize("dtype", ["int8", "uint4", "int16", "int32"])
def test_nan_has_no_integer_and_is_reported_with_its_place(dtype):
    x = np.zeros((2, 3), np.float32)
    x[1, 2] = np.nan
    with pytest.raises(DataError, match=rf"NaN at index \(1, 2\) of a tensor of shape \(2, 3\) has no {dtype} value"):
        fake_quantize(x, QParams(QuantSpec(dtype), 1.0, 0))


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_nan_stays_nan_in_a_float_format(dtype):
    assert np.isnan(fake_quantize(np.array([np.nan], np.float32), QParams(QuantSpec(dtype), 1.0, 0)))[0]


def test_scales_of_the_wrong_shape_are_explained():
    qparams = QParams(QuantSpec("int8", granularity=PerChannel(0)), np.ones(4), 0)
    with pytest.raises(
        SpecError, match=r"shape \(3, 2\) quantized per channel \(axis 0\) needs scales of shape \(3,\)"
    ):
        quantize(np.zeros((3, 2), np.float32), qparams)


def test_stored_values_of_the_wrong_kind_are_refused():
    with pytest.raises(SpecError, match="stored values of int8 are integers"):
        dequantize(np.zeros(2, np.float32), QParams(QuantSpec("int8"), 1.0, 0))
    with pytest.raises(SpecError, match="stored values of fp8_e4m3 have dtype float8_e4m3fn, got uint8"):
        dequantize(np.zeros(2, np.uint8), QParams(QuantSpec("fp8_e4m3"), 1.0, 0))


def test_a_destination_of_the_wrong_shape_or_dtype_is_refused():
    x, qparams = np.zeros(3, np.float32), QParams(QuantSpec("int8"), 1.0, 0)
    with pytest.raises(SpecError, match=r"out must have shape \(3,\) and dtype int8"):
        quantize(x, qparams, out=np.zeros(3, np.uint8))
    with pytest.raises(SpecError, match=r"out must have shape \(3,\)"):
        quantize(x, qparams, out=np.zeros(4, np.int8))


def test_packed_integer_types_of_ml_dtypes_can_be_dequantized():
    codes = np.array([-8, 7], ml_dtypes.int4)
    assert dequantize(codes, QParams(QuantSpec("int4"), 0.5, 0)).tolist() == [-4.0, 3.5]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int4", "int16", "uint16", "int32"])
@pytest.mark.parametrize("zero_point", [0, 3])
def test_fake_quantization_has_the_bits_of_storing_and_reading(dtype: str, zero_point: int) -> None:
    """The sign of zero included: a stored integer has none."""
    spec = QuantSpec(dtype, symmetric=zero_point == 0 or dtype == "int32")
    qparams = QParams(spec, np.float32(0.37), np.int32(0 if spec.symmetric else zero_point))
    values = np.random.default_rng(0).normal(0, 40, 4000).astype(np.float32)
    values[:8] = [0.0, -0.0, -0.01, 0.01, np.inf, -np.inf, 3e38, -3e38]
    stored = dequantize(quantize(values, qparams), qparams)
    assert fake_quantize(values, qparams).tobytes() == stored.tobytes()
