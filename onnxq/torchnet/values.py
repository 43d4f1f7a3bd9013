"""What flows between the operators of a TorchNet, and how it is read from and written to numpy.

tensor                         torch.Tensor
tensor of strings, or of an    numpy array (object, or ml_dtypes: int4, uint4, int2, uint2, float4 ...)
element type that torch lacks
sequence                       list
optional without a value, or   None
an input that was left out
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import torch
from onnx import TensorProto, helper

from onnxq.errors import ModelError

Value = Any
"""One of the kinds above."""

_SAME_BITS: dict[np.dtype[Any], tuple[torch.dtype, np.dtype[Any]]] = {
    np.dtype(ml_dtypes.bfloat16): (torch.bfloat16, np.dtype(np.int16)),
    np.dtype(ml_dtypes.float8_e4m3fn): (torch.float8_e4m3fn, np.dtype(np.uint8)),
    np.dtype(ml_dtypes.float8_e4m3fnuz): (torch.float8_e4m3fnuz, np.dtype(np.uint8)),
    np.dtype(ml_dtypes.float8_e5m2): (torch.float8_e5m2, np.dtype(np.uint8)),
    np.dtype(ml_dtypes.float8_e5m2fnuz): (torch.float8_e5m2fnuz, np.dtype(np.uint8)),
    np.dtype(ml_dtypes.float8_e8m0fnu): (torch.float8_e8m0fnu, np.dtype(np.uint8)),
}
"""numpy dtypes that `torch.from_numpy` does not take: torch's dtype, and one of the same size that it takes."""

_NUMPY_OF = {torch_dtype: (numpy_dtype, plain) for numpy_dtype, (torch_dtype, plain) in _SAME_BITS.items()}

_PLAIN_NAMES = (
    *("float64", "float32", "float16", "complex64", "complex128", "bool"),
    *("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8"),
)
_PLAIN: dict[np.dtype[Any], torch.dtype] = {np.dtype(name): getattr(torch, name) for name in _PLAIN_NAMES}


def torch_dtype(dtype: Any) -> torch.dtype | None:
    """torch's dtype of a numpy dtype or an ONNX element type; None for strings and the types that torch lacks."""
    if isinstance(dtype, int):
        if dtype == TensorProto.STRING:
            return None
        dtype = helper.tensor_dtype_to_np_dtype(dtype)
    dtype = np.dtype(dtype)
    if dtype in _PLAIN:
        return _PLAIN[dtype]
    known = _SAME_BITS.get(dtype)
    return None if known is None else known[0]


def numpy_dtype_of(value: torch.Tensor | np.ndarray) -> np.dtype[Any]:
    """The numpy (or ml_dtypes) dtype of a tensor."""
    if isinstance(value, np.ndarray):
        return value.dtype
    if value.dtype in _NUMPY_OF:
        return _NUMPY_OF[value.dtype][0]
    return np.dtype(str(value.dtype).removeprefix("torch."))


def from_numpy(array: np.ndarray) -> Value:
    """A value of the net; the memory is the net's own."""
    array = np.asarray(array)
    dtype = torch_dtype(array.dtype) if array.dtype.kind not in "OSU" else None
    if dtype is None:
        return array
    copied = np.array(array, order="C", copy=True)
    if array.dtype in _SAME_BITS:
        return torch.from_numpy(copied.view(_SAME_BITS[array.dtype][1])).view(dtype)
    return torch.from_numpy(copied.astype(array.dtype.newbyteorder("="), copy=False))


def to_numpy(value: Value) -> np.ndarray:
    """The numpy array of a tensor; strings and packed types are one already."""
    if isinstance(value, np.ndarray):
        return value
    if not isinstance(value, torch.Tensor):
        raise ModelError(f"a tensor was expected, not a {type(value).__name__}")
    value = value.detach().cpu().contiguous()
    if value.dtype in _NUMPY_OF:
        dtype, plain = _NUMPY_OF[value.dtype]
        return value.view(torch.int16 if plain.itemsize == 2 else torch.uint8).numpy().view(dtype)
    return value.numpy()


def device_of(*values: Value) -> torch.device | None:
    """Where the first tensor among values is; None, which means the processor, if there is none."""
    for value in values:
        if isinstance(value, torch.Tensor):
            return value.device
        if isinstance(value, list) and value:
            return device_of(*value)
    return None


def as_ints(value: Value) -> list[int]:
    """The numbers of a small integer tensor, such as a shape or a list of axes."""
    flat: Sequence[Any] = value.reshape(-1).tolist()
    return [int(item) for item in flat]
