"""Number formats: their ranges, the combinations that cannot exist, and their JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq.errors import SpecError
from onnxq.types import PerBlock, PerChannel, PerTensor, QuantSpec
from onnxq.types.number_format import number_format, number_formats
from onnxq.types.spec import ROUNDINGS

DTYPES = list(number_formats())
FLOAT8 = ("fp8_e4m3", "fp8_e5m2")


@pytest.mark.parametrize("bits", range(1, 17))
def test_every_width_has_its_range(bits):
    signed, unsigned = QuantSpec(f"int{bits}"), QuantSpec(f"uint{bits}")
    assert (signed.qmin, signed.qmax) == (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    assert (unsigned.qmin, unsigned.qmax) == (0, 2**bits - 1)
    assert (signed.signed, unsigned.signed) == (True, False)
    assert signed.bits == unsigned.bits == bits


def test_int32_has_its_range():
    spec = QuantSpec("int32")
    assert (spec.qmin, spec.qmax) == (-(2**31), 2**31 - 1)


def test_a_narrow_range_drops_the_lowest_value():
    spec = QuantSpec("int8", narrow_range=True)
    assert (spec.qmin, spec.qmax) == (-127, 127)


def test_explicit_limits_replace_those_of_the_container():
    spec = QuantSpec("int8", quant_min=-64, quant_max=63)
    assert (spec.qmin, spec.qmax) == (-64, 63)


@pytest.mark.parametrize(
    ("dtype", "bits"), [("fp8_e4m3", 8), ("fp8_e5m2", 8), ("fp16", 16), ("bf16", 16), ("bfp16", 16)]
)
def test_floating_point_formats_are_signed_float_grids(dtype, bits):
    spec = QuantSpec(dtype)
    assert (spec.format.summary, spec.evenly_spaced, spec.bits, spec.signed) == ("floating point", False, bits, True)
    with pytest.raises(SpecError, match=f"{dtype} is not an integer format"):
        _ = spec.qmin


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dtype": "int17"}, r"unknown dtype 'int17'.*Did you mean .*Known: int1\.\.int16"),
        ({"dtype": "uint32"}, "unknown dtype 'uint32'"),
        ({"rounding": "half_evn"}, "unknown rounding 'half_evn'.*Did you mean 'half_even'"),
        ({"narrow_range": True, "quant_min": -100}, "either narrow_range or an explicit quant_min"),
        ({"dtype": "uint8", "narrow_range": True}, "narrow_range drops the lowest value of a signed format"),
        ({"dtype": "int1", "narrow_range": True}, "narrow_range drops the lowest value of a signed format"),
        ({"quant_min": -129}, r"must be in order and inside int8 \[-128, 127\]"),
        ({"quant_max": 128}, r"must be in order and inside int8 \[-128, 127\]"),
        ({"quant_min": 5, "quant_max": 5}, "must be in order"),
        ({"quant_min": 1}, r"\[1, 127\] has no zero"),
        ({"quant_max": -1}, r"\[-128, -1\] has no zero"),
        ({"dtype": "int32", "symmetric": False}, "int32 is for biases"),
        ({"dtype": "fp8_e4m3", "symmetric": False}, "must be symmetric"),
        ({"dtype": "fp8_e5m2", "narrow_range": True}, "narrow_range, quant_min and quant_max do not apply"),
        ({"dtype": "fp16", "quant_min": -1}, "narrow_range, quant_min and quant_max do not apply"),
        ({"dtype": "bf16", "quant_max": 1}, "narrow_range, quant_min and quant_max do not apply"),
        ({"dtype": "fp16", "rounding": "floor"}, "fp16 rounds half_even; 'floor' is for integer formats"),
        ({"dtype": "fp16", "granularity": PerChannel(0)}, "fp16 needs no scale"),
        ({"dtype": "bf16", "granularity": PerBlock(0, 8)}, "bf16 needs no scale"),
        ({"dtype": "bfp16", "symmetric": False}, "bfp16 is a floating-point grid.*must be symmetric"),
        ({"dtype": "bfp16", "narrow_range": True}, "narrow_range, quant_min and quant_max do not apply"),
        ({"dtype": "bfp16", "rounding": "half_up"}, "bfp16 rounds half_even"),
        ({"dtype": "bfp16", "power_of_two": True}, "bfp16 has no scale.*power_of_two does not apply"),
        ({"dtype": "bfp16", "granularity": PerChannel(0)}, r"blocks of 2 or more.*PerBlock\(axis=1, size=8\)"),
        ({"dtype": "bfp16", "granularity": PerBlock(0, 1)}, "blocks of 2 or more along an axis, got per block of 1"),
        ({"dtype": "bpf16"}, "unknown dtype 'bpf16'.*Did you mean .*bfp16"),
    ],
    ids=str,
)
def test_an_illegal_combination_is_explained(arguments, message):
    with pytest.raises(SpecError, match=message):
        QuantSpec(**arguments)


def test_eight_channels_share_an_exponent_where_nothing_else_is_said():
    spec = QuantSpec("bfp16")
    assert spec.granularity == PerBlock(1, 8)
    assert spec == QuantSpec("int8").replace(dtype="bfp16")
    assert QuantSpec("bfp16", granularity=PerBlock(-1, 16)).granularity == PerBlock(-1, 16)
    assert str(spec) == "bfp16, symmetric, per block of 8 (axis 1)"


@pytest.mark.parametrize("dtype", DTYPES)
def test_only_the_wide_floating_point_formats_have_no_scale(dtype):
    spec = QuantSpec(dtype)
    assert spec.has_scale == (dtype not in ("fp16", "bf16", "bfp16"))
    assert spec.scale_shape((3, 20, 5)) == ()


def test_shared_exponents_are_no_scales():
    assert QuantSpec("bfp16", granularity=PerBlock(1, 8)).scale_shape((3, 20)) == ()
    assert QuantSpec("int4", granularity=PerBlock(1, 8)).scale_shape((3, 20)) == (3, 3)


def test_replace_checks_again():
    with pytest.raises(SpecError, match="int32 is for biases"):
        QuantSpec("uint8", symmetric=False).replace(dtype="int32")


@st.composite
def specs(draw):
    dtype = draw(st.sampled_from(DTYPES))
    axis, size = draw(st.integers(-4, 4)), draw(st.integers(1, 256))
    if dtype in ("fp16", "bf16"):
        return QuantSpec(dtype)
    form = number_format(dtype)
    if form.can_be_dynamic:
        rule = draw(st.sampled_from((None, *form.scale_rules)))
        blocks = PerBlock(axis, size)
        return QuantSpec(dtype, granularity=blocks, dynamic=draw(st.booleans()), scale_rule=rule)
    if dtype == "bfp16":
        return QuantSpec(dtype, granularity=PerBlock(axis, size + 1))
    granularity = draw(st.sampled_from([PerTensor(), PerChannel(axis), PerBlock(axis, size)]))
    if dtype in FLOAT8:
        return QuantSpec(dtype, granularity=granularity, power_of_two=draw(st.booleans()))
    if dtype == "nnie8":
        return QuantSpec(dtype, granularity=granularity)
    low, high = QuantSpec(dtype).ends
    narrow = dtype.startswith("int") and dtype != "int1" and draw(st.booleans())
    return QuantSpec(
        dtype,
        symmetric=dtype == "int32" or draw(st.booleans()),
        narrow_range=narrow,
        power_of_two=draw(st.booleans()),
        rounding=draw(st.sampled_from(ROUNDINGS)),
        granularity=granularity,
        quant_min=None if narrow else draw(st.sampled_from([None, low])),
        quant_max=draw(st.sampled_from([None, high])),
    )


@given(specs())
def test_reads_back_from_json(spec):
    assert QuantSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


def test_json_holds_only_what_differs_from_the_default():
    assert QuantSpec("int8").to_json() == {"dtype": "int8"}
    spec = QuantSpec("uint8", symmetric=False, granularity=PerChannel(1))
    assert spec.to_json() == {"dtype": "uint8", "symmetric": False, "granularity": {"per": "channel", "axis": 1}}


def test_an_unknown_key_is_named_with_its_neighbour():
    with pytest.raises(SpecError, match=r"unknown key 'symetric'.*Did you mean 'symmetric'"):
        QuantSpec.from_json({"dtype": "int8", "symetric": False})


def test_text_tells_everything_that_matters():
    spec = QuantSpec("int8", narrow_range=True, power_of_two=True, rounding="half_up", granularity=PerChannel(0))
    assert str(spec) == "int8, symmetric, per channel (axis 0), narrow range, power-of-two scale, half_up"
    assert str(QuantSpec("uint8", symmetric=False, quant_max=127)) == "uint8, asymmetric, per tensor, [0, 127]"
