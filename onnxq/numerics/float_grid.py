"""Single values and bit patterns of the floating-point formats (`onnxq.numerics.formats`), by the name of a format."""

from __future__ import annotations

import numpy as np

from onnxq.errors import SpecError
from onnxq.types.number_format import number_format, number_formats
from onnxq.types.spec import QuantSpec


def float_storage(dtype: str) -> np.dtype:
    """The numpy dtype whose elements hold values of a floating-point format such as "fp8_e4m3"."""
    form = number_format(dtype)
    if not form.has_nan:
        raise _unknown(dtype)
    return form.storage


def float_max(dtype: str) -> float:
    """The largest finite value of a format without integer steps in units of its scale: 448.0 for "fp8_e4m3".

    The scale of the logarithmic nnie8 is its largest value, hence 1.0.
    """
    spec = QuantSpec(dtype)
    if spec.evenly_spaced:
        raise _unknown(dtype)
    return spec.ends[1]


def round_to_float(x: np.ndarray, dtype: str) -> np.ndarray:
    """Round float32 values to the nearest member of a format, saturated; the result has the format's numpy dtype.

    Not for bfp16, whose members depend on a value's neighbours.
    """
    float_storage(dtype)
    spec = QuantSpec(dtype)
    if spec.format.pieces(np.shape(x), spec) is not None:
        raise SpecError(f"a single value has no nearest {dtype} number: its neighbours decide (round_to_blocks)")
    return spec.format.encode(np.asarray(x, np.float32), np.ones((), np.float32), np.zeros((), np.int32), spec)


def to_bits(stored: np.ndarray) -> np.ndarray:
    """The bit patterns (uint8 or uint16) of an array in a format's numpy dtype, as ONNX raw data holds them."""
    return np.ascontiguousarray(stored).view(np.dtype(f"u{stored.dtype.itemsize}")).reshape(stored.shape)


def from_bits(bits: np.ndarray, dtype: str) -> np.ndarray:
    """The inverse of `to_bits`: read bit patterns as values of a floating-point format."""
    storage = float_storage(dtype)
    if bits.dtype != np.dtype(f"u{storage.itemsize}"):
        raise SpecError(f"bit patterns of {dtype} are uint{8 * storage.itemsize}, got {bits.dtype}")
    return np.ascontiguousarray(bits).view(storage).reshape(bits.shape)


def _unknown(dtype: str) -> SpecError:
    known = ", ".join(name for name, form in number_formats().items() if form.has_nan)
    return SpecError(f"{dtype} is not a floating-point format. Known: {known}")
