"""ONNX element types as numpy (or ml_dtypes) dtypes, and the bytes they take in a file."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from onnxq.errors import ModelError

# Bits per element of the formats that ONNX packs. Asked by name: older releases of onnx lack the younger ones.
_PACKED_BITS = {
    getattr(TensorProto, name): bits
    for name, bits in {
        "INT4": 4,
        "UINT4": 4,
        "FLOAT4E2M1": 4,
        "INT2": 2,
        "UINT2": 2,
        "FLOAT6E2M3": 6,
        "FLOAT6E3M2": 6,
    }.items()
    if hasattr(TensorProto, name)
}

_PAIRS_AT_A_TIME = 1 << 16


@functools.cache
def _known_dtype(element_type: int) -> np.dtype[Any] | None:
    try:
        return np.dtype(helper.tensor_dtype_to_np_dtype(element_type))
    except KeyError:
        return None


def numpy_dtype(element_type: int, name: str = "") -> np.dtype[Any]:
    """numpy (or ml_dtypes) dtype of an ONNX element type; `name` is the tensor to blame when there is none."""
    dtype = _known_dtype(element_type)
    if dtype is None and element_type <= TensorProto.UNDEFINED:
        raise ModelError(f"tensor '{name}' has no element type; the file is damaged, export the model again")
    if dtype is None:
        raise ModelError(
            f"tensor '{name}' has the element type {element_type}, which this release of onnx does not know; "
            "install a newer one"
        )
    return dtype


@functools.cache
def _known_element_type(dtype: np.dtype[Any]) -> int | None:
    if dtype.kind in "SU":
        return int(TensorProto.STRING)
    try:
        return int(helper.np_dtype_to_tensor_dtype(dtype.newbyteorder("=")))
    except ValueError:
        return None


def onnx_dtype(dtype: Any) -> int:
    """ONNX element type of a numpy or ml_dtypes dtype; ONNX numbers pass through."""
    if isinstance(dtype, int):
        return dtype
    element_type = _known_element_type(np.dtype(dtype))
    if element_type is None:
        raise ModelError(f"ONNX has no element type for values of dtype {dtype}; convert them first")
    return element_type


def is_packed(element_type: int) -> bool:
    """Whether several elements share a byte in files."""
    return element_type in _PACKED_BITS


def stored_size(element_type: int, shape: Sequence[int]) -> int:
    """Bytes that the values take in a file, packed formats included."""
    count = math.prod(shape)
    bits = _PACKED_BITS.get(element_type)
    if bits is not None:
        return -(-count * bits // 8)
    return count * numpy_dtype(element_type).itemsize


def _nibbles(array: np.ndarray) -> memoryview:
    """Two values of 4 bits to a byte, the first one in its lower half."""
    pairs = np.ascontiguousarray(array).reshape(-1).view(np.uint16)
    packed = np.empty(pairs.size, np.uint8)
    for start in range(0, pairs.size, _PAIRS_AT_A_TIME):
        part = pairs[start : start + _PAIRS_AT_A_TIME]
        packed[start : start + _PAIRS_AT_A_TIME] = (part & 0x0F) | ((part >> 4) & 0xF0)
    return packed.data


def stored_bytes(array: np.ndarray) -> memoryview:
    """The bytes as ONNX stores them: little endian, packed where the format is; zero-copy where possible."""
    packed = onnx_dtype(array.dtype)
    if _PACKED_BITS.get(packed) == 4 and sys.byteorder == "little" and array.size % 2 == 0 and array.size:
        return _nibbles(array)
    if is_packed(packed):
        return memoryview(numpy_helper.from_array(array).raw_data)
    if array.dtype.itemsize > 1 and array.dtype.kind in "fiuc":
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
