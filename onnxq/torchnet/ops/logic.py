"""Comparisons, logic and bits."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from onnxq.torchnet.call import Call
from onnxq.torchnet.ops.broadcasting import aligned
from onnxq.torchnet.ops.widen import wide_tensor, widened
from onnxq.torchnet.registry import Kernel, op


def _register_comparison(name: str, function: Callable[[Tensor, Tensor], Tensor]) -> None:
    @op(name)
    def build(call: Call) -> Kernel:
        return widened(call, aligned(call, function), ordered=True, back=())


for _name, _comparison in {
    "Equal": torch.eq,
    "Greater": torch.gt,
    "GreaterOrEqual": torch.ge,
    "Less": torch.lt,
    "LessOrEqual": torch.le,
}.items():
    _register_comparison(_name, _comparison)


def _register_logic(name: str, function: Callable[[Tensor, Tensor], Tensor]) -> None:
    @op(name)
    def build(call: Call) -> Kernel:
        return aligned(call, function)


for _name, _logic in {"And": torch.logical_and, "Or": torch.logical_or, "Xor": torch.logical_xor}.items():
    _register_logic(_name, _logic)


@op("Not")
def negation(call: Call) -> Kernel:
    return torch.logical_not


def _register_bits(name: str, function: Callable[[Tensor, Tensor], Tensor]) -> None:
    @op(name, since=18)
    def build(call: Call) -> Kernel:
        return widened(call, function)


for _name, _bits in {
    "BitwiseAnd": torch.bitwise_and,
    "BitwiseOr": torch.bitwise_or,
    "BitwiseXor": torch.bitwise_xor,
}.items():
    _register_bits(_name, _bits)


@op("BitwiseNot", since=18)
def bitwise_not(call: Call) -> Kernel:
    return widened(call, torch.bitwise_not)


@op("BitShift", since=11)
def bit_shift(call: Call) -> Kernel:
    """Shifts by a negative number or by all the bits leave nothing but the sign of a right shift."""
    direction = call.attribute("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise call.unsupported(f"direction '{direction}' is neither 'LEFT' nor 'RIGHT'")

    def run(x: Tensor, amount: Tensor) -> Tensor:
        bits = x.dtype.itemsize * 8
        wide, by = wide_tensor(x).long(), wide_tensor(amount).long()
        outside = (by < 0) | (by >= bits)
        by = by.masked_fill(outside, 0)
        if direction == "LEFT":
            return (wide << by).masked_fill(outside, 0).to(x.dtype)
        shifted = wide >> by
        if x.dtype is torch.uint64:  # int64 of the same bits: what its sign has filled in goes away
            shifted = torch.where(by > 0, shifted & ~(torch.full_like(by, -1) << (bits - by).clamp(max=63)), shifted)
        return torch.where(outside, wide >> 63 if x.dtype.is_signed else torch.zeros_like(wide), shifted).to(x.dtype)

    return run
