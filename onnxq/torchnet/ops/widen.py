"""Element types that torch's kernels lack, computed in a wider type: uint16, uint32, uint64, float8, int4 ..., strings.

A builder wraps its kernel, and gets it back as it was where the model declares types that torch computes with:

    return widened(call, torch.maximum, ordered=True)
    return widened(call, top_k, ordered=True, back=(0,))      # output 1 holds indices, which are int64 anyway

The wrapped kernel takes torch tensors only. Its outputs become the narrow type again, all of them or those in `back`.

    uint16                   int32
    uint32                   int64
    uint64                   int64 of the same bits, so sums and products wrap as they should; with `ordered` the
                             highest bit is turned over: comparing, sorting, minima, maxima are right, and sums not
    float8, float6, float4   float32
    int4, uint4, int2, uint2 int32
    strings                  int64, in the order of the strings, 0 for the empty one: right for moving and comparing
    float16, bfloat16        float32, only with `half`: for kernels that have no half precision
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch import Tensor

from onnxq.torchnet.call import Call
from onnxq.torchnet.registry import Kernel
from onnxq.torchnet.values import Value, numpy_dtype_of

FLOAT8 = (
    torch.float8_e4m3fn,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
)

_WIDER: dict[torch.dtype, torch.dtype] = {
    torch.uint16: torch.int32,
    torch.uint32: torch.int64,
    torch.uint64: torch.int64,
    **dict.fromkeys(FLOAT8, torch.float32),
}

_HALVES = (torch.float16, torch.bfloat16)

_HIGHEST_BIT = -(2**63)

_LACKING = {
    np.dtype(kind)
    for kind in (
        np.uint16,
        np.uint32,
        np.uint64,
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.float8_e4m3fnuz,
        ml_dtypes.float8_e5m2,
        ml_dtypes.float8_e5m2fnuz,
        ml_dtypes.float8_e8m0fnu,
        ml_dtypes.float6_e2m3fn,
        ml_dtypes.float6_e3m2fn,
        ml_dtypes.float4_e2m1fn,
        ml_dtypes.int4,
        ml_dtypes.uint4,
        ml_dtypes.int2,
        ml_dtypes.uint2,
    )
}

_SMALL_INTEGERS = {np.dtype(kind) for kind in (ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2)}

_HALF_TYPES = {np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)}

Back = Callable[[Tensor], Value]


def widened(
    call: Call, kernel: Kernel, *, ordered: bool = False, half: bool = False, back: Collection[int] | None = None
) -> Kernel:
    """`kernel` for all element types: itself if the node's inputs are declared with types that torch computes with."""
    declared = [call.element_type(port) for port in range(len(call.inputs)) if call.has_input(port)]
    if declared and not any(kind is None or _is_lacking(kind, half) for kind in declared):
        return kernel

    def run(*inputs: Value) -> Value:
        narrow = next((item for item in inputs if _is_narrow(item, half)), None)
        if narrow is None:
            return kernel(*inputs)
        words = _vocabulary(inputs)
        wide = [_widen(item, ordered, words) if _is_narrow(item, half) else item for item in inputs]
        narrowed = _way_back(narrow, ordered, words)
        result = kernel(*wide)
        if not isinstance(result, tuple):
            return narrowed(result) if back is None or 0 in back else result
        return tuple(
            narrowed(item) if isinstance(item, Tensor) and (back is None or number in back) else item
            for number, item in enumerate(result)
        )

    return run


def wide_tensor(value: Value) -> Tensor:
    """The values of a number tensor in a type that torch computes with; itself if it has one."""
    if isinstance(value, np.ndarray):
        wide: Tensor = _widen(value, False, None)
        return wide
    kind = _WIDER.get(value.dtype)
    return value if kind is None else value.to(kind)


def narrow_value(wide: Tensor, dtype: Any) -> Value:
    """Values in the type of `dtype` (a torch dtype, or a numpy one that torch lacks), which must hold them."""
    if isinstance(dtype, torch.dtype):
        return wide.to(dtype)
    return wide.detach().cpu().numpy().astype(dtype)


def _is_lacking(kind: np.dtype[Any], half: bool) -> bool:
    return kind in _LACKING or kind.kind in "OSU" or (half and kind in _HALF_TYPES)


def _is_narrow(value: Value, half: bool) -> bool:
    if isinstance(value, Tensor):
        return value.dtype in _WIDER or (half and value.dtype in _HALVES)
    return isinstance(value, np.ndarray)


def _widen(value: Value, ordered: bool, words: np.ndarray | None) -> Tensor:
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "OSU":
            assert words is not None
            return torch.from_numpy(np.searchsorted(words, value.astype(str)).astype(np.int64).reshape(value.shape))
        return torch.from_numpy(np.asarray(value.astype(np.int32 if value.dtype in _SMALL_INTEGERS else np.float32)))
    wide = value.to(_WIDER.get(value.dtype, torch.float32))
    return wide ^ _HIGHEST_BIT if ordered and value.dtype is torch.uint64 else wide


def _way_back(narrow: Value, ordered: bool, words: np.ndarray | None) -> Back:
    if isinstance(narrow, Tensor):
        kind = narrow.dtype
        if ordered and kind is torch.uint64:
            return lambda wide: (wide ^ _HIGHEST_BIT).to(kind)
        return lambda wide: wide.to(kind)
    if words is not None:
        found = words
        return lambda wide: found[wide.numpy()].astype(object).reshape(tuple(wide.shape))
    dtype = numpy_dtype_of(narrow)
    return lambda wide: narrow_value(wide, dtype)


def _vocabulary(inputs: tuple[Value, ...]) -> np.ndarray | None:
    """All strings of the inputs in their order, behind the empty one; None if there are none."""
    arrays = [item for item in inputs if isinstance(item, np.ndarray) and item.dtype.kind in "OSU"]
    if not arrays:
        return None
    return np.unique(np.concatenate([np.array([""]), *(array.astype(str).reshape(-1) for array in arrays)]))
