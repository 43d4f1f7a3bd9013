"""Floating-point grids: fp8 (both OCP formats), fp16 and bf16, rounded half to even and saturated.

    format     largest    smallest normal   onnx type
    fp8_e4m3   448        2^-6              FLOAT8E4M3FN (no infinities)
    fp8_e5m2   57344      2^-14             FLOAT8E5M2
    fp16       65504      2^-14             FLOAT16
    bf16       3.39e38    2^-126            BFLOAT16
    bfp16      3.38e38    by its block      none: held as BFLOAT16, see `onnxq.numerics.bfp`

Values beyond the largest, infinities included, become the largest, as QuantizeLinear with saturate=1 does in
onnxruntime. NaN stays NaN: every one of these formats has it.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from onnxq.errors import SpecError
from onnxq.types.spec import BLOCK_DTYPES

_STORAGE: dict[str, np.dtype] = {
    "fp8_e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "fp8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "fp16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "bfp16": np.dtype(ml_dtypes.bfloat16),
}

_LARGEST = {"fp8_e4m3": 448.0, "fp8_e5m2": 57344.0, "fp16": 65504.0, "bf16": (2 - 2**-7) * 2.0**127}
_LARGEST |= {"bfp16": 127 * 2.0**121, "nnie8": 1.0}
_UNKNOWN = "{} is not a floating-point format. Known: " + ", ".join(_STORAGE)


def float_storage(dtype: str) -> np.dtype:
    """The numpy dtype whose elements hold values of a floating-point format such as "fp8_e4m3"."""
    if dtype not in _STORAGE:
        raise SpecError(_UNKNOWN.format(dtype))
    return _STORAGE[dtype]


def float_max(dtype: str) -> float:
    """The largest finite value of a floating-point format in units of its scale, such as 448.0 for "fp8_e4m3".

    The scale of the logarithmic nnie8 is its largest value, hence 1.0.
    """
    if dtype not in _LARGEST:
        raise SpecError(_UNKNOWN.format(dtype))
    return _LARGEST[dtype]


def round_to_float(x: np.ndarray, dtype: str) -> np.ndarray:
    """Round float32 values to the nearest member of a format, saturated; the result has the format's numpy dtype.

    Not for bfp16, whose members depend on a value's neighbours: see `onnxq.numerics.bfp`.
    """
    if dtype in BLOCK_DTYPES:
        raise SpecError(f"a single value has no nearest {dtype} number: its neighbours decide (round_to_blocks)")
    largest = np.float32(float_max(dtype))
    limited = np.clip(np.asarray(x, dtype=np.float32), -largest, largest)
    return np.asarray(limited.astype(float_storage(dtype)))


def to_bits(stored: np.ndarray) -> np.ndarray:
    """The bit patterns (uint8 or uint16) of an array in a format's numpy dtype, as ONNX raw data holds them."""
    return np.ascontiguousarray(stored).view(np.dtype(f"u{stored.dtype.itemsize}")).reshape(stored.shape)


def from_bits(bits: np.ndarray, dtype: str) -> np.ndarray:
    """The inverse of `to_bits`: read bit patterns as values of a floating-point format."""
    storage = float_storage(dtype)
    if bits.dtype != np.dtype(f"u{storage.itemsize}"):
        raise SpecError(f"bit patterns of {dtype} are uint{8 * storage.itemsize}, got {bits.dtype}")
    return np.ascontiguousarray(bits).view(storage).reshape(bits.shape)
