"""Activation functions of one tensor, and PRelu with its slopes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from onnxq.torchnet.call import Call
from onnxq.torchnet.ops.widen import widened
from onnxq.torchnet.registry import Kernel, op

_SELU_ALPHA = 1.6732632423543772
_SELU_GAMMA = 1.0507009873554805
"""The constants of the paper of SELU, which the defaults of ONNX are, and torch's."""


def _register(name: str, function: Callable[[Tensor], Tensor]) -> None:
    @op(name)
    def build(call: Call) -> Kernel:
        return widened(call, function)


for _name, _function in {
    "Relu": torch.relu,
    "Sigmoid": torch.sigmoid,
    "Tanh": torch.tanh,
    "Softplus": functional.softplus,
    "Softsign": functional.softsign,
    "Mish": functional.mish,
    "HardSwish": functional.hardswish,
}.items():
    _register(_name, _function)


@op("LeakyRelu")
def leaky_relu(call: Call) -> Kernel:
    return partial(functional.leaky_relu, negative_slope=call.attribute("alpha", 0.01))


@op("Elu")
def elu(call: Call) -> Kernel:
    return partial(functional.elu, alpha=call.attribute("alpha", 1.0))


@op("Celu")
def celu(call: Call) -> Kernel:
    return partial(functional.celu, alpha=call.attribute("alpha", 1.0))


@op("Selu")
def selu(call: Call) -> Kernel:
    old = call.version < 6  # the first definition had the constants with fewer digits
    alpha = call.attribute("alpha", 1.6732 if old else _SELU_ALPHA)
    gamma = call.attribute("gamma", 1.0507 if old else _SELU_GAMMA)
    if abs(alpha - _SELU_ALPHA) < 1e-6 and abs(gamma - _SELU_GAMMA) < 1e-6:
        return functional.selu
    return lambda x: functional.elu(x, alpha) * gamma


@op("ThresholdedRelu")
def thresholded_relu(call: Call) -> Kernel:
    threshold = call.attribute("alpha", 1.0)
    return lambda x: functional.threshold(x, threshold, 0.0)


@op("HardSigmoid")
def hard_sigmoid(call: Call) -> Kernel:
    alpha, beta = call.attribute("alpha", 0.2), call.attribute("beta", 0.5)
    if abs(alpha - 1 / 6) < 1e-7 and beta == 0.5:
        return functional.hardsigmoid
    return lambda x: torch.clamp(x * alpha + beta, 0.0, 1.0)


@op("Shrink")
def shrink(call: Call) -> Kernel:
    limit, bias = call.attribute("lambd", 0.5), call.attribute("bias", 0.0)

    def run(x: Tensor) -> Tensor:
        wide = x if x.is_floating_point() else x.double()
        shrunk = torch.where(wide < -limit, wide + bias, torch.where(wide > limit, wide - bias, torch.zeros_like(wide)))
        return shrunk.to(x.dtype)

    return widened(call, run)


@op("Gelu", since=20)
def gelu(call: Call) -> Kernel:
    approximate = call.attribute("approximate", "none")
    if approximate not in ("none", "tanh"):
        raise call.unsupported(f"approximate='{approximate}' is neither 'none' nor 'tanh'")
    return partial(functional.gelu, approximate=approximate)


@op("Swish", since=24)
def swish(call: Call) -> Kernel:
    alpha = call.attribute("alpha", 1.0)
    return functional.silu if alpha == 1.0 else lambda x: x * torch.sigmoid(x * alpha)


@op("PRelu")
def prelu(call: Call) -> Kernel:
    """Slopes broadcast to the tensor as numpy does; before opset 7 a vector holds one slope per channel."""
    per_channel = call.version < 7

    def run(x: Tensor, slope: Tensor) -> Tensor:
        if x.is_floating_point() and x.ndim > 1:
            if slope.numel() == 1:
                return functional.prelu(x, slope.reshape(1))
            channels = x.shape[1]
            by_channel = slope.ndim == x.ndim - 1 and slope.shape[0] == channels
            by_channel |= slope.ndim == x.ndim and slope.shape[1] == channels
            by_channel |= per_channel and slope.ndim == 1
            if by_channel and slope.numel() == channels:
                return functional.prelu(x, slope.reshape(channels))
        return torch.where(x < 0, x * slope, x)

    return widened(call, run)


@op("SwiGLU", since=28)
def swiglu(call: Call) -> Kernel:
    gate = swish(call)
    return lambda a, b: gate(a) * b
