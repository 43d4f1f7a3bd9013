"""Scales and zero points: their shapes, what is refused, and JSON that keeps every bit."""

import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from onnxq.errors import SpecError
from onnxq.files import write_json
from onnxq.types import PerBlock, PerChannel, QParams, QParamsTable, QuantSpec

UINT8 = QuantSpec("uint8", symmetric=False)
CHANNELS = UINT8.replace(granularity=PerChannel(0))


def test_values_are_float32_and_int32_and_cannot_be_changed():
    source = np.array([0.1, 0.2])
    qparams = QParams(CHANNELS, source, [3, 4])
    assert (qparams.scale.dtype, qparams.zero_point.dtype) == (np.float32, np.int32)
    source[0] = 9
    assert qparams.scale[0] == np.float32(0.1)
    with pytest.raises(ValueError, match="read-only"):
        qparams.scale[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        qparams.zero_point[0] = 1


def test_one_number_is_enough_per_tensor_and_one_zero_point_for_all_channels():
    assert QParams(UINT8, [0.5], [7]).scale.shape == ()
    assert QParams(CHANNELS, [0.5, 0.25], 7).zero_point.tolist() == [7, 7]


@pytest.mark.parametrize(
    ("spec", "scale", "zero_point", "message"),
    [
        (UINT8, [0.5, 0.5], 0, r"a per-tensor scale is one number, got shape \(2,\)"),
        (CHANNELS, 0.5, 0, "a per-channel scale is one-dimensional"),
        (CHANNELS, [[0.5]], 0, "a per-channel scale is one-dimensional"),
        (UINT8.replace(granularity=PerBlock(0, 4)), 0.5, 0, "a per-block scale has the rank of its tensor"),
        (UINT8, 0.0, 0, "finite and greater than zero"),
        (UINT8, -1.0, 0, "finite and greater than zero"),
        (UINT8, np.nan, 0, "finite and greater than zero"),
        (UINT8, np.inf, 0, "finite and greater than zero"),
        (UINT8, 1e-50, 0, "finite and greater than zero"),
        (UINT8, 1.0, 256, r"zero points must lie in \[0, 255\]"),
        (UINT8, 1.0, -1, r"zero points must lie in \[0, 255\]"),
        (QuantSpec("int8"), 1.0, 1, "a symmetric format has zero point 0"),
        (QuantSpec("fp8_e4m3"), 1.0, 1, "a symmetric format has zero point 0"),
    ],
)
def test_illegal_parameters_are_explained(spec, scale, zero_point, message):
    with pytest.raises(SpecError, match=message):
        QParams(spec, scale, zero_point)


def test_equality_compares_all_three_parts():
    base = QParams(CHANNELS, [0.5, 0.25], [1, 2])
    assert base == QParams(CHANNELS, [0.5, 0.25], [1, 2])
    assert base != QParams(CHANNELS, [0.5, 0.2501], [1, 2])
    assert base != QParams(CHANNELS, [0.5, 0.25], [1, 3])
    assert base != QParams(CHANNELS.replace(power_of_two=True), [0.5, 0.25], [1, 2])
    assert base != "something else"


positive = st.floats(float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max), width=32)


@given(hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=3, max_side=4), elements=positive))
def test_json_keeps_every_bit(scale):
    spec = QuantSpec("int4", granularity=PerBlock(0, 16))
    back = QParams.from_json(json.loads(json.dumps(QParams(spec, scale, 0).to_json())))
    assert back.scale.tobytes() == scale.tobytes()
    assert back.spec == spec


def test_json_of_a_scale_is_short():
    assert json.dumps(QParams(UINT8, 0.1, 3).to_json()["scale"]) == "0.1"


def test_a_table_reads_back_with_provenance_and_integer_weights():
    table = QParamsTable()
    table.put("x", QParams(UINT8, 0.1, 3), "minmax over 8 samples")
    table.put("w", QParams(CHANNELS, [0.1, 0.2], 128), "weight")
    table.integer_weights["w"] = np.array([[1, -2], [3, 4]], np.int16)
    back = QParamsTable.from_json(json.loads(json.dumps(table.to_json())))
    assert list(back) == ["x", "w"]
    assert len(back) == 2
    assert back["x"] == table["x"]
    assert back["w"] == table["w"]
    assert back.provenance == table.provenance
    assert back.integer_weights["w"].dtype == np.int16
    np.testing.assert_array_equal(back.integer_weights["w"], table.integer_weights["w"])


def test_a_missing_tensor_is_named_with_its_neighbour():
    table = QParamsTable()
    table.put("conv1_output", QParams(UINT8, 0.1, 3), "")
    assert "conv1_output" in table
    assert "conv2" not in table
    with pytest.raises(SpecError, match=r"no quantization parameters for tensor 'conv1_outptu'.*'conv1_output'"):
        table["conv1_outptu"]


def test_another_file_is_not_taken_for_a_table():
    with pytest.raises(SpecError, match="not a table of quantization parameters"):
        QParamsTable.from_json({"format": "onnxq-plan"})


def test_zero_points_of_many_blocks_are_the_same_numbers_in_less_memory():
    spec = QuantSpec("uint4", symmetric=False, granularity=PerBlock(0, 32))
    zero_point = (np.arange(200 * 300) % 16).reshape(200, 300)
    qparams = QParams(spec, np.ones((200, 300)), zero_point)
    assert qparams.zero_point.dtype == np.int32
    np.testing.assert_array_equal(qparams.zero_point, zero_point)
    assert vars(qparams)["zero_point"].nbytes == zero_point.size
    for again in (QParams.from_json(json.loads(json.dumps(qparams.to_json()))), pickle.loads(pickle.dumps(qparams))):
        assert again == qparams
    with pytest.raises(ValueError, match="read-only"):
        qparams.zero_point[0] = 1


def test_scales_of_either_sign_are_for_formats_that_say_so():
    signed = QuantSpec("int4", signed_scale=True, granularity=PerChannel(0))
    assert QParams(signed, [-0.5, 0.25], 0).scale.tolist() == [-0.5, 0.25]
    assert QParams.from_json(QParams(signed, [-0.5, 0.25], 0).to_json()).spec == signed
    with pytest.raises(SpecError, match="greater than zero"):
        QParams(signed.replace(signed_scale=False), [-0.5, 0.25], 0)
    with pytest.raises(SpecError, match="greater than zero"):
        QParams(signed, [-0.5, 0.0], 0)
    for wrong in ({"dtype": "uint4"}, {"symmetric": False}, {"power_of_two": True}, {"dtype": "fp8_e4m3"}):
        with pytest.raises(SpecError):
            QuantSpec(**{"dtype": "int4", "signed_scale": True, **wrong})


def test_the_table_for_a_file_is_the_table_as_json(tmp_path):
    table = QParamsTable()
    table.put("w", QParams(UINT8, 0.5, 3), "minmax", "block_scales")
    write_json(tmp_path / "t.json", table.for_json_file())
    assert json.loads((tmp_path / "t.json").read_text()) == table.to_json()
