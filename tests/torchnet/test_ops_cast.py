"""Conversions between all element types, held against ml_dtypes, numpy and onnxruntime."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from onnx import TensorProto, helper

from onnxq.errors import UnsupportedError
from onnxq.torchnet.ops.cast import converter
from onnxq.torchnet.values import from_numpy, to_numpy
from tests.torchnet.one_node import assert_like_onnxruntime, in_torch, net_of, one_node

EVERY_HALF = np.arange(65536, dtype=np.uint16).view(np.float16)
pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
"""numpy says so where infinities and NaN become small types."""

FLOAT8 = ["FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ"]
KINDS = [
    np.float32,
    np.float64,
    np.float16,
    np.int8,
    np.uint8,
    np.int16,
    np.uint16,
    np.int32,
    np.uint32,
    np.int64,
    np.bool_,
]


def _element_type(name: str) -> int:
    return int(TensorProto.DataType.Value(name))


@pytest.mark.parametrize("name", FLOAT8)
def test_every_half_becomes_the_float8_of_the_table_without_saturation(name: str) -> None:
    to = _element_type(name)
    dtype = helper.tensor_dtype_to_np_dtype(to)
    found = to_numpy(converter(to, saturate=False)(from_numpy(EVERY_HALF)))
    np.testing.assert_array_equal(found.astype(np.float32), EVERY_HALF.astype(dtype).astype(np.float32))


@pytest.mark.parametrize("name", FLOAT8)
def test_every_half_becomes_the_nearest_float8_with_saturation(name: str) -> None:
    to = _element_type(name)
    dtype = helper.tensor_dtype_to_np_dtype(to)
    largest = float(ml_dtypes.finfo(dtype).max)
    expected = np.clip(EVERY_HALF.astype(np.float32), -largest, largest).astype(dtype)
    found = to_numpy(converter(to)(from_numpy(EVERY_HALF)))
    np.testing.assert_array_equal(
        found.view(np.uint8)[~np.isnan(EVERY_HALF)], expected.view(np.uint8)[~np.isnan(EVERY_HALF)]
    )
    assert np.isnan(found.astype(np.float32)[np.isnan(EVERY_HALF)]).all()


@pytest.mark.parametrize(
    ("round_mode", "expected"), [("up", [1, 2, 4, 4]), ("down", [1, 1, 2, 2]), ("nearest", [1, 2, 2, 4])]
)
def test_powers_of_two_round_as_asked(round_mode: str, expected: list[float]) -> None:
    values = np.array([1, 1.5, 2.5, 3.5], np.float32)
    found = converter(TensorProto.FLOAT8E8M0, True, round_mode)(from_numpy(values))
    assert found.float().tolist() == expected


@pytest.mark.parametrize("source", KINDS)
@pytest.mark.parametrize("target", KINDS)
def test_conversions_between_plain_types_are_those_of_onnxruntime(source: type, target: type) -> None:
    values = np.array([0, 1, 2.75, 100, 99.5]).astype(source)
    to = helper.np_dtype_to_tensor_dtype(np.dtype(target))
    assert_like_onnxruntime("Cast", [values], opset=13, kind=to, to=to)


@pytest.mark.parametrize(("source", "target"), [(np.int32, np.int8), (np.int64, np.uint16), (np.int32, np.uint32)])
def test_integers_out_of_range_keep_their_lower_bits(source: type, target: type) -> None:
    to = helper.np_dtype_to_tensor_dtype(np.dtype(target))
    assert_like_onnxruntime("Cast", [np.array([200, -1, 70000, -300], source)], opset=13, kind=to, to=to)


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2])
def test_small_integers_go_there_and_back(dtype: Any) -> None:
    limits = ml_dtypes.iinfo(dtype)
    values = np.arange(int(limits.min), int(limits.max) + 1).astype(np.float32)
    small = converter(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))(from_numpy(values))
    assert small.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(converter(TensorProto.FLOAT)(small).numpy(), values)


def test_strings_are_read_and_written_as_numbers() -> None:
    texts = np.array(["1e-5", "-INF", "nan", "+inf", "100.5"], object)
    found = in_torch(one_node("Cast", [texts], opset=13, to=TensorProto.FLOAT), [texts])[0]
    np.testing.assert_array_equal(found, np.array([1e-5, -np.inf, np.nan, np.inf, 100.5], np.float32))
    whole = np.array([str(2**60 + 1), "-7"], object)
    assert in_torch(one_node("Cast", [whole], opset=13, to=TensorProto.INT64), [whole])[0].tolist() == [2**60 + 1, -7]
    numbers = np.array([0.5, 3], np.float32)
    written = in_torch(one_node("Cast", [numbers], opset=13, to=TensorProto.STRING), [numbers])[0]
    assert written.tolist() == ["0.5", "3.0"]


def test_opset_1_names_the_type() -> None:
    values = np.array([1.5, -2.5], np.float32)
    assert in_torch(one_node("Cast", [values], opset=1, to="INT32"), [values])[0].tolist() == [1, -2]
    with pytest.raises(UnsupportedError, match="no element type 'INTEGER'"):
        net_of(one_node("Cast", [values], opset=1, to="INTEGER"))


def test_cast_like_takes_the_type_of_the_second_tensor() -> None:
    values, like = np.array([1.5, -2.5], np.float32), np.zeros(1, np.int16)
    found = in_torch(one_node("CastLike", [values, like], opset=15, kind=TensorProto.INT16), [values, like])[0]
    assert found.dtype == np.int16
    assert found.tolist() == [1, -2]


@pytest.mark.parametrize(("source", "target"), [(np.float32, np.int32), (np.int16, np.float16), (np.uint8, np.int8)])
def test_bits_are_read_as_another_type(source: Any, target: Any) -> None:
    values = np.array([1, 7, 100], source)
    to = helper.np_dtype_to_tensor_dtype(np.dtype(target))
    found = in_torch(one_node("BitCast", [values], opset=26, kind=to, to=to), [values])[0]
    np.testing.assert_array_equal(found, values.view(target))


def test_gradients_pass_a_cast_between_floating_point_types() -> None:
    x = torch.tensor([1.5, 2.5], requires_grad=True)
    net = net_of(one_node("Cast", [x.detach().numpy()], opset=13, kind=TensorProto.DOUBLE, to=TensorProto.DOUBLE))
    (net(x) * torch.tensor([2.0, 3.0], dtype=torch.float64)).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 3.0]
