"""QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear, in all versions and granularities.

    q = saturate(round(x / scale) + zero_point)        y = (q - zero_point) * scale

Gradients pass straight through the rounding, from a DequantizeLinear to the QuantizeLinear before it: integers cannot
carry them, so the quantized tensor takes its values before the conversion along, as an attribute (`straight`).
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import torch
from onnx import TensorProto, helper
from torch import Tensor

from onnxq.torchnet.call import Call
from onnxq.torchnet.ops.cast import converter, element_type_of
from onnxq.torchnet.ops.contrib import MICROSOFT
from onnxq.torchnet.ops.widen import wide_tensor
from onnxq.torchnet.registry import Kernel, op
from onnxq.torchnet.values import Value, numpy_dtype_of, torch_dtype

_INTEGERS = (
    *(TensorProto.INT8, TensorProto.UINT8, TensorProto.INT16, TensorProto.UINT16, TensorProto.INT32),
    *(TensorProto.INT4, TensorProto.UINT4, TensorProto.INT2, TensorProto.UINT2),
)

_STRAIGHT = "straight"


@op("QuantizeLinear", since=10)
@op("QuantizeLinear", domain=MICROSOFT)
def quantize_linear(call: Call) -> Kernel:
    axis, block_size = int(call.attribute("axis", 1)), int(call.attribute("block_size", 0))
    saturate = bool(call.attribute("saturate", 1))
    precision = torch_dtype(int(call.attribute("precision", 0))) if call.attribute("precision", 0) else None
    kind = int(call.attribute("output_dtype", 0)) or TensorProto.UINT8
    declared = call.element_type(2)

    def run(x: Tensor, scale: Value, zero_point: Value = None) -> Value:
        to = kind if zero_point is None else element_type_of(declared or numpy_dtype_of(zero_point))
        divisor = spread(wide_tensor(scale), x, axis, block_size)
        inner = precision or (divisor.dtype if divisor.is_floating_point() else torch.float32)
        ratio = x.to(inner) / divisor.to(inner)
        zero = None if zero_point is None else spread(wide_tensor(zero_point).to(x.device), x, axis, block_size)
        if to not in _INTEGERS:
            return _with_straight(_shifted(ratio, zero), converter(to, saturate))
        return _with_straight(rounded_to_integers(ratio, zero, to), converter(to))

    return run


@op("DequantizeLinear", since=10)
@op("DequantizeLinear", domain=MICROSOFT)
def dequantize_linear(call: Call) -> Kernel:
    axis, block_size = int(call.attribute("axis", 1)), int(call.attribute("block_size", 0))
    wanted = int(call.attribute("output_dtype", 0))
    to = torch_dtype(wanted) if wanted else None

    def run(x: Value, scale: Value, zero_point: Value = None) -> Tensor:
        values: Tensor | None = getattr(x, _STRAIGHT, None)
        if values is None:
            values = wide_tensor(x)
        factor = wide_tensor(scale)
        values = values.to(factor.device)  # small integers come from numpy
        inner = torch.promote_types(factor.dtype, torch.float32)
        centred = values.to(inner)
        if zero_point is not None:
            centred = centred - spread(wide_tensor(zero_point).to(values.device), values, axis, block_size).to(inner)
        y = centred * spread(factor, values, axis, block_size).to(inner)
        return y.to(to or (scale.dtype if isinstance(scale, Tensor) else torch.float32))

    return run


@op("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(call: Call) -> Kernel:
    """To uint8, with the range of the tensor, widened to hold 0."""
    convert = converter(TensorProto.UINT8)

    def run(x: Tensor) -> tuple[Value, Tensor, Tensor]:
        low, high = x.amin().clamp(max=0.0), x.amax().clamp(min=0.0)
        span = (high - low) / 255.0
        scale = torch.where(span > 0, span, torch.ones_like(span))
        zero = rounded_to_integers(-low / scale, None, TensorProto.UINT8)
        return _with_straight(rounded_to_integers(x / scale, zero, TensorProto.UINT8), convert), scale, convert(zero)

    return run


def spread(value: Tensor, like: Tensor, axis: int, block_size: int) -> Tensor:
    """A scale or zero point in a shape that broadcasts to the tensor: per tensor, per slice of `axis`, or per block."""
    if value.numel() == 1:
        return value.reshape(())
    if block_size:
        return value.repeat_interleave(block_size, axis).narrow(axis, 0, like.shape[axis])
    shape = [1] * like.ndim
    shape[axis] = value.numel()
    return value.reshape(shape)


def rounded_to_integers(ratio: Tensor, zero: Tensor | None, kind: int) -> Tensor:
    """round(ratio) + zero point, half to even, within the range of an integer type; still floating point.

    float16 cannot hold the sum, so it is made in float32. The gradient passes the rounding, not the limits.
    """
    wide = ratio.to(torch.promote_types(ratio.dtype, torch.float32))
    whole = wide.detach().round()
    values = wide + (whole - wide.detach()) if wide.requires_grad else whole
    limits = ml_dtypes.iinfo(helper.tensor_dtype_to_np_dtype(kind))  # type: ignore[no-untyped-call]
    return _shifted(values, zero).clamp(int(limits.min), int(limits.max))


def _shifted(values: Tensor, zero: Tensor | None) -> Tensor:
    return values if zero is None else values + zero


class _Carrier(np.ndarray):
    """Small integers, which numpy holds, with their values before the conversion."""

    straight: Tensor | None = None


def _with_straight(values: Tensor, convert: Kernel) -> Value:
    """`values` converted; the result remembers them if somebody wants gradients."""
    result = convert(values.detach())
    if values.requires_grad:
        exact = wide_tensor(result)
        result = result if isinstance(result, Tensor) else result.view(_Carrier)
        setattr(result, _STRAIGHT, _passing(values, exact))
    return result


def _passing(values: Tensor, exact: Tensor) -> Tensor:
    """What the conversion has made of the values, with their gradient."""
    return values + (exact.to(values.dtype) - values).detach()
