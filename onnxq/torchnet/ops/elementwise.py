"""Arithmetic element by element: functions of one number, of two, and of any number of tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np
import torch
from torch import Tensor

from onnxq.torchnet.call import Call
from onnxq.torchnet.ops.broadcasting import aligned
from onnxq.torchnet.ops.widen import wide_tensor, widened
from onnxq.torchnet.registry import Kernel, op

_UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "Abs": torch.abs,
    "Acos": torch.acos,
    "Acosh": torch.acosh,
    "Asin": torch.asin,
    "Asinh": torch.asinh,
    "Atan": torch.atan,
    "Atanh": torch.atanh,
    "Ceil": torch.ceil,
    "Cos": torch.cos,
    "Cosh": torch.cosh,
    "Exp": torch.exp,
    "Floor": torch.floor,
    "Log": torch.log,
    "Neg": torch.neg,
    "Reciprocal": torch.reciprocal,
    "Round": torch.round,
    "Sign": torch.sign,
    "Sin": torch.sin,
    "Sinh": torch.sinh,
    "Sqrt": torch.sqrt,
    "Tan": torch.tan,
}


def _register_unary(name: str, function: Callable[[Tensor], Tensor]) -> None:
    @op(name)
    def build(call: Call) -> Kernel:
        return widened(call, function)


for _name, _function in _UNARY.items():
    _register_unary(_name, _function)


@op("Erf", since=9)
def erf(call: Call) -> Kernel:
    def run(x: Tensor) -> Tensor:
        return torch.erf(x) if x.is_floating_point() else torch.erf(x.double()).to(x.dtype)

    return widened(call, run)


# ---- two tensors -------------------------------------------------------------------------------------------------


def _register_binary(name: str, function: Callable[[Tensor, Tensor], Tensor]) -> None:
    @op(name)
    def build(call: Call) -> Kernel:
        return widened(call, aligned(call, function))


_BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"Add": torch.add, "Sub": torch.sub, "Mul": torch.mul}

for _name, _binary in _BINARY.items():
    _register_binary(_name, _binary)


@op("Div")
def divide(call: Call) -> Kernel:
    """Integers are divided towards zero."""
    kind = call.element_type()
    if kind is not None and kind.kind == "f":
        return aligned(call, torch.div)

    def run(a: Tensor, b: Tensor) -> Tensor:
        if a.dtype is torch.uint64:
            return torch.from_numpy(np.asarray(np.floor_divide(a.cpu().numpy(), b.cpu().numpy()))).to(a.device)
        return torch.div(a, b) if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc")

    return _whole_uint64(call, aligned(call, run))


@op("Mod", since=10)
def modulo(call: Call) -> Kernel:
    as_c = bool(call.attribute("fmod", 0))

    def run(a: Tensor, b: Tensor) -> Tensor:
        if a.dtype is torch.uint64:
            return torch.from_numpy(np.asarray(np.remainder(a.cpu().numpy(), b.cpu().numpy()))).to(a.device)
        return torch.fmod(a, b) if as_c else torch.remainder(a, b)

    return _whole_uint64(call, run)


def _whole_uint64(call: Call, kernel: Kernel) -> Kernel:
    """`widened`, with uint64 left to the kernel: its upper half does not fit into a wider type that can be divided."""
    wide = widened(call, kernel)
    if wide is kernel:
        return kernel
    return lambda a, b: kernel(a, b) if isinstance(a, Tensor) and a.dtype is torch.uint64 else wide(a, b)


@op("Pow")
def power(call: Call) -> Kernel:
    """The result has the type of the base, also where the exponent has another."""
    kind = call.element_type()
    if kind is not None and kind.kind == "f" and call.rank(1) == 0:
        known = call.constant(1)
        if known is not None:
            exponent = known.item()
            return lambda base, _: torch.pow(base, exponent)

    def run(base: Tensor, exponent: Tensor) -> Tensor:
        if base.dtype == exponent.dtype or (base.is_floating_point() and not exponent.is_floating_point()):
            return torch.pow(base, exponent)
        if base.is_floating_point():
            return torch.pow(base, exponent.to(base.dtype))
        if exponent.is_floating_point():
            return torch.pow(base.double(), exponent.double()).to(base.dtype)
        return torch.pow(base.long(), exponent.long()).to(base.dtype)

    wide = widened(call, aligned(call, run))
    return lambda base, exponent: wide(base, wide_tensor(exponent))  # only the base says what the result is


# ---- any number of tensors ---------------------------------------------------------------------------------------


@op("Max")
def maximum(call: Call) -> Kernel:
    return _folded(call, torch.maximum, ordered=True)


@op("Min")
def minimum(call: Call) -> Kernel:
    return _folded(call, torch.minimum, ordered=True)


@op("Sum")
def total(call: Call) -> Kernel:
    return _folded(call, torch.add, ordered=False)


@op("Mean")
def mean(call: Call) -> Kernel:
    add = _folded(call, torch.add, ordered=False)
    count = len(call.inputs)
    return lambda *tensors: add(*tensors) / count


def _folded(call: Call, function: Callable[[Tensor, Tensor], Tensor], *, ordered: bool) -> Kernel:
    kernel: Kernel = function if len(call.inputs) == 2 else lambda *tensors: reduce(function, tensors)
    return widened(call, kernel, ordered=ordered)


# ---- limits and choices ------------------------------------------------------------------------------------------


@op("Clip", until=10)
def clip_to_attributes(call: Call) -> Kernel:
    low, high = call.attribute("min", None), call.attribute("max", None)
    if low is None and high is None:
        return lambda x: x
    return lambda x: torch.clamp(x, low, high)


@op("Clip", since=11)
def clip(call: Call) -> Kernel:
    """Limits in the model are numbers; those that come at run time are tensors."""
    if not call.has_input(1) and not call.has_input(2):
        return lambda *inputs: inputs[0]
    known = [call.constant(port) for port in (1, 2)]
    if all(limit is not None or not call.has_input(port) for port, limit in enumerate(known, 1)):
        kind = call.element_type()
        if kind is not None and kind.kind in "fi":
            low, high = (None if limit is None else limit.item() for limit in known)
            return lambda x, *limits: torch.clamp(x, low, high)

    def run(x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
        if low is None and high is None:
            return x
        return torch.clamp(x, None if low is None else low.reshape(()), None if high is None else high.reshape(()))

    return widened(call, run, ordered=True)


@op("Where", since=9)
def where(call: Call) -> Kernel:
    return widened(call, torch.where)


@op("IsNaN", since=9)
def is_nan(call: Call) -> Kernel:
    return widened(call, torch.isnan, back=())


@op("IsInf", since=10)
def is_infinite(call: Call) -> Kernel:
    negative, positive = call.attribute("detect_negative", 1), call.attribute("detect_positive", 1)
    if negative and positive:
        return widened(call, torch.isinf, back=())
    if negative or positive:
        return widened(call, torch.isneginf if negative else torch.isposinf, back=())
    return widened(call, lambda x: torch.zeros_like(x, dtype=torch.bool), back=())
