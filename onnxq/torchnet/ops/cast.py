"""Cast, CastLike and BitCast, and the conversion of values from every element type to every other."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import torch
from onnx import TensorProto, helper
from torch import Tensor

from onnxq.torchnet.call import Call
from onnxq.torchnet.ops.widen import wide_tensor
from onnxq.torchnet.registry import Kernel, op
from onnxq.torchnet.values import Value, from_numpy, numpy_dtype_of, to_numpy, torch_dtype

Conversion = Callable[[Value], Value]

_SATURATING = (
    TensorProto.FLOAT8E4M3FN,
    TensorProto.FLOAT8E4M3FNUZ,
    TensorProto.FLOAT8E5M2,
    TensorProto.FLOAT8E5M2FNUZ,
)

_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)

ROUND_MODES = ("up", "down", "nearest")


@op("Cast")
def cast(call: Call) -> Kernel:
    return converter(_target(call), *_manner(call))


@op("CastLike", since=15)
def cast_like(call: Call) -> Kernel:
    manner = _manner(call)
    kind = call.element_type(1)
    if kind is not None:
        known = converter(element_type_of(kind), *manner)
        return lambda x, _: known(x)
    return lambda x, like: converter(element_type_of(numpy_dtype_of(like)), *manner)(x)


@op("BitCast", since=26)
def bit_cast(call: Call) -> Kernel:
    to = _target(call)
    if to == TensorProto.STRING:
        raise call.unsupported("bits cannot be read as strings")
    kind, array_kind = torch_dtype(to), helper.tensor_dtype_to_np_dtype(to)

    def run(x: Value) -> Value:
        if isinstance(x, Tensor) and kind is not None:
            return x.view(kind)
        return from_numpy(to_numpy(x).view(array_kind))

    return run


def converter(to: int, saturate: bool = True, round_mode: str = "up") -> Conversion:
    """A function that converts values of any type to the ONNX element type `to`.

    saturate    numbers beyond the range of a float8 become its largest; otherwise NaN, or infinite where it has that
    round_mode  how float8e8m0, which holds powers of two, rounds: up, down or nearest
    """
    if to == TensorProto.STRING:
        return lambda x: to_numpy(x).astype(str).astype(object)
    kind, array_kind = torch_dtype(to), helper.tensor_dtype_to_np_dtype(to)
    if to == TensorProto.FLOAT8E8M0:
        return lambda x: _to_power_of_two(numbers(x).float(), saturate, round_mode)
    if to in _SATURATING:
        if not saturate:
            return lambda x: from_numpy(to_numpy(numbers(x).float()).astype(array_kind))
        largest = float(ml_dtypes.finfo(array_kind).max)  # type: ignore[no-untyped-call]
        return lambda x: numbers(x).float().clamp(-largest, largest).to(kind)
    if kind is None:
        return lambda x: to_numpy(numbers(x)).astype(array_kind)
    if kind in _UNSIGNED:
        return lambda x: _through_int64(numbers(x)).to(kind)

    def run(x: Value) -> Value:
        return x.to(kind) if isinstance(x, Tensor) else numbers(x).to(kind)

    return run


def numbers(x: Value) -> Tensor:
    """The values as a tensor that torch can compute with; strings are read as numbers."""
    if isinstance(x, np.ndarray) and x.dtype.kind in "OSU":
        texts = [str(text).strip() for text in x.reshape(-1)]
        if all(text.lstrip("+-").isdigit() for text in texts):
            return torch.tensor([int(text) for text in texts], dtype=torch.int64).reshape(x.shape)
        return torch.tensor([float(text) for text in texts], dtype=torch.float64).reshape(x.shape)
    return x if isinstance(x, Tensor) and x.dtype in _UNSIGNED else wide_tensor(x)


def element_type_of(kind: np.dtype[np.generic]) -> int:
    """The ONNX element type of a numpy dtype."""
    return TensorProto.STRING if kind.kind in "OSU" else int(helper.np_dtype_to_tensor_dtype(kind))


def _through_int64(x: Tensor) -> Tensor:
    """Negative numbers wrap if they become integers first, and are undefined otherwise."""
    return x.long() if x.is_floating_point() and bool((x < 0).any()) else x


def _to_power_of_two(x: Tensor, saturate: bool, round_mode: str) -> Tensor:
    """float32 -> float8e8m0: the exponent, with the fraction rounded into it; 255 is NaN, 0 is 2^-127."""
    bits = x.contiguous().view(torch.int32)
    exponent, fraction = (bits >> 23) & 0xFF, bits & 0x7FFFFF
    if round_mode == "up":
        more = fraction > 0
    elif round_mode == "nearest":
        more = (fraction > 0x400000) | ((fraction == 0x400000) & (exponent > 0))
    else:
        more = torch.zeros_like(fraction, dtype=torch.bool)
    rounded = exponent + more.int()
    if saturate:
        rounded = rounded.clamp(max=0xFE)
    rounded = torch.where(exponent == 0xFF, 0xFF, rounded)
    return rounded.to(torch.uint8).view(torch.float8_e8m0fnu)


def _target(call: Call) -> int:
    to = call.attribute("to")
    if isinstance(to, str):  # opset 1 has the name of the type
        types = dict(TensorProto.DataType.items())
        if to not in types:
            raise call.unsupported(f"there is no element type '{to}'; known are {', '.join(types)}")
        return int(types[to])
    return int(to)


def _manner(call: Call) -> tuple[bool, str]:
    """`saturate` and `round_mode`, which only conversions to float8 look at."""
    round_mode = call.attribute("round_mode", "up")
    if round_mode not in ROUND_MODES:
        raise call.unsupported(f"round_mode '{round_mode}' is not one of {', '.join(ROUND_MODES)}")
    return bool(call.attribute("saturate", 1)), round_mode
