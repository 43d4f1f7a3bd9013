"""Tensors made from nothing but a shape or limits: ConstantOfShape, EyeLike, Range."""

from __future__ import annotations

import math

import numpy as np
import torch
from onnx import TensorProto
from torch import Tensor

from onnxq.errors import DataError
from onnxq.torchnet.call import Call
from onnxq.torchnet.ops.widen import narrow_value, wide_tensor
from onnxq.torchnet.registry import Kernel, op
from onnxq.torchnet.values import Value, torch_dtype


@op("ConstantOfShape", since=9)
def constant_of_shape(call: Call) -> Kernel:
    shape_of = call.ints(0)
    value = call.tensor_attribute("value") if call.has_attribute("value") else torch.zeros(())
    value = value.reshape(())
    if isinstance(value, np.ndarray):
        array = value
        return lambda shape: np.full(tuple(shape_of(shape)), array)
    return lambda shape: value.to(shape.device).expand(tuple(shape_of(shape))).clone()


@op("EyeLike", since=9)
def eye_like(call: Call) -> Kernel:
    offset = call.attribute("k", 0)
    wanted = call.attribute("dtype", None)
    dtype = None if wanted is None else torch_dtype(wanted)
    if wanted is not None and dtype is None:
        raise call.unsupported(f"torch has no element type {TensorProto.DataType.Name(wanted)}")

    def run(like: Tensor) -> Tensor:
        rows, columns = like.shape
        diagonal = torch.arange(columns, device=like.device) - torch.arange(rows, device=like.device).unsqueeze(1)
        return (diagonal == offset).to(like.dtype if dtype is None else dtype)

    return run


@op("Range", since=11)
def number_range(call: Call) -> Kernel:
    """start, start + delta, ... below limit; half precision is computed in float32."""

    def run(start: Value, limit: Value, delta: Value) -> Value:
        first, last, step = (wide_tensor(value).reshape(()) for value in (start, limit, delta))
        low, high, width = first.item(), last.item(), step.item()
        if width == 0:
            raise DataError(f"{call}: delta is 0, so the range has no end")
        exact = -((low - high) // width) if isinstance(low, int) else math.ceil((high - low) / width)
        dtype = torch.float32 if first.dtype in (torch.float16, torch.bfloat16) else first.dtype
        numbers = torch.arange(max(0, exact), dtype=dtype, device=first.device)
        return narrow_value(first.to(dtype) + numbers * step.to(dtype), start.dtype)

    return run
