"""Products of quantized tensors: QLinearMatMul, QLinearConv, MatMulInteger, ConvInteger.

The integers are multiplied in float64, which holds every sum of 16-bit products exactly up to 2^53, and which torch has
fast kernels for; the sums then are int32 with its overflow.
"""

from __future__ import annotations

import torch
from torch import Tensor

from onnxq.torchnet.call import Call
from onnxq.torchnet.ops.cast import converter, element_type_of
from onnxq.torchnet.ops.convolution import conv
from onnxq.torchnet.ops.quantization import rounded_to_integers
from onnxq.torchnet.ops.widen import wide_tensor
from onnxq.torchnet.registry import Kernel, op
from onnxq.torchnet.values import Value, numpy_dtype_of


@op("MatMulInteger", since=10)
def matmul_integer(call: Call) -> Kernel:
    def run(a: Value, b: Value, a_zero: Value = None, b_zero: Value = None) -> Tensor:
        return _as_int32(torch.matmul(_centred(a, _by_row(a_zero)), _centred(b, b_zero)))

    return run


@op("ConvInteger", since=10)
def conv_integer(call: Call) -> Kernel:
    convolve = conv(call)

    def run(x: Value, weight: Value, x_zero: Value = None, weight_zero: Value = None) -> Tensor:
        return _as_int32(convolve(_centred(x, x_zero), _centred(weight, _by_channel(weight_zero, weight.ndim))))

    return run


@op("QLinearMatMul", since=10)
def qlinear_matmul(call: Call) -> Kernel:
    def run(
        a: Value,
        a_scale: Tensor,
        a_zero: Value,
        b: Value,
        b_scale: Tensor,
        b_zero: Value,
        y_scale: Tensor,
        y_zero: Value,
    ) -> Value:
        sums = _as_int32(torch.matmul(_centred(a, _by_row(a_zero)), _centred(b, b_zero)))
        return _requantized(sums, _by_row(a_scale).float() * b_scale.float() / _by_row(y_scale).float(), y_zero)

    return run


@op("QLinearConv", since=10)
def qlinear_conv(call: Call) -> Kernel:
    convolve = conv(call)

    def run(
        x: Value,
        x_scale: Tensor,
        x_zero: Value,
        weight: Value,
        weight_scale: Tensor,
        weight_zero: Value,
        y_scale: Tensor,
        y_zero: Value,
        bias: Tensor | None = None,
    ) -> Value:
        centred = _centred(weight, _by_channel(weight_zero, weight.ndim))
        sums = _as_int32(convolve(_centred(x, x_zero), centred, None if bias is None else bias.double()))
        per_channel = _by_channel(weight_scale, weight.ndim).reshape(-1, *[1] * (weight.ndim - 2))
        return _requantized(sums, x_scale * per_channel / y_scale, y_zero)

    return run


def _centred(values: Value, zero: Value) -> Tensor:
    wide = wide_tensor(values).double()
    return wide if zero is None else wide - wide_tensor(zero).double()


def _by_row(value: Value) -> Value:
    """A vector with one number per row of a matrix, as a column."""
    return value.reshape(-1, 1) if value is not None and value.ndim == 1 and value.shape[0] > 1 else value


def _by_channel(value: Value, rank: int) -> Value:
    """A vector with one number per output channel, as it fits a weight."""
    return value if value is None or value.ndim != 1 else value.reshape(-1, *[1] * (rank - 1))


def _as_int32(sums: Tensor) -> Tensor:
    return sums.long().to(torch.int32)


def _requantized(sums: Tensor, factor: Tensor, zero: Value) -> Value:
    kind = element_type_of(numpy_dtype_of(zero))
    shift = wide_tensor(zero)
    return converter(kind)(rounded_to_integers(sums.float() * factor, _by_row(shift), kind))
