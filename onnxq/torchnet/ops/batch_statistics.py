"""Mean and variance of a batch, over all processes of a training, and running statistics that follow them.

    running = running * momentum + batch * (1 - momentum)

The variance is that of the batch itself (divided by N, as in ONNX's BatchNormalization).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed
from torch import Tensor

from onnxq.torchnet.call import Call, Mode


def is_live(call: Call) -> bool:
    """Whether a batch norm uses and learns the statistics of the batch now."""
    return call.training and call.mode.live_statistics


def live_batch_norm(
    mode: Mode, x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, variance: Tensor, epsilon: float, momentum: float
) -> Tensor:
    """Batch norm over axis 1 with the statistics of the batch; `mean` and `variance` are updated in place."""
    if not _many_processes() and _has_own_kernel(x, gamma, mean):
        return _own_kernel(mode, x, gamma, beta, mean, variance, epsilon, momentum)
    found_mean, found_variance = batch_statistics(x)
    follow(mode, mean, variance, found_mean, found_variance, momentum)
    return normalize(x, gamma, beta, found_mean, found_variance, epsilon)


def follow(
    mode: Mode, mean: Tensor, variance: Tensor, found_mean: Tensor, found_variance: Tensor, momentum: float
) -> None:
    """Move the running statistics towards those of the batch, but not when a part of the net is run a second time."""
    if mode.recomputing:
        return
    with torch.no_grad():
        mean.lerp_(found_mean.detach().to(mean.dtype), 1 - momentum)
        variance.lerp_(found_variance.detach().to(variance.dtype), 1 - momentum)


def batch_statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance over all axes but axis 1; those of all processes if there are several."""
    axes = [axis for axis in range(x.dim()) if axis != 1]
    if not _many_processes():
        variance, mean = torch.var_mean(x, dim=axes, correction=0)
        return mean, variance
    count = x.new_full((1,), x.numel() // x.shape[1])
    sums = _over_processes(torch.cat([x.sum(dim=axes), count]))
    mean = sums[:-1] / sums[-1]
    centred = x - mean.reshape(_over_channels(x))
    variance = _over_processes(centred.square().sum(dim=axes)) / sums[-1]
    return mean, variance


def normalize(x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, variance: Tensor, epsilon: float) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta over axis 1, with gradients to everything."""
    shape = _over_channels(x)
    scale = gamma * torch.rsqrt(variance + epsilon)
    return (x - mean.reshape(shape)) * scale.reshape(shape) + beta.reshape(shape)


def _over_processes(sums: Tensor) -> Tensor:
    return SumOverProcesses.apply(sums)  # type: ignore[no-untyped-call]


class SumOverProcesses(torch.autograd.Function):
    """The sums of all processes, with gradients that go through all of them, which the plain all_reduce has not."""

    @staticmethod
    def forward(ctx: Any, sums: Tensor) -> Tensor:
        return _reduced(sums)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _reduced(gradient)


def _reduced(values: Tensor) -> Tensor:
    total = values.clone(memory_format=torch.contiguous_format)
    torch.distributed.all_reduce(total)
    return total


def _over_channels(x: Tensor) -> list[int]:
    return [-1 if axis == 1 else 1 for axis in range(x.dim())]


def _many_processes() -> bool:
    return (
        torch.distributed.is_available()
        and torch.distributed.is_initialized()
        and torch.distributed.get_world_size() > 1
    )


def _has_own_kernel(x: Tensor, gamma: Tensor, mean: Tensor) -> bool:
    return x.dtype == gamma.dtype == mean.dtype and x.numel() > x.shape[1]


def _own_kernel(
    mode: Mode, x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, variance: Tensor, epsilon: float, momentum: float
) -> Tensor:
    """torch's fused kernel, which also gives the mean and 1 / sqrt(variance + epsilon).

    It is not given statistics to update: it would keep them for the gradients before it changes them, which fails where
    a part of the net is run a second time.
    """
    y, found_mean, inverse = torch.native_batch_norm(x, gamma, beta, None, None, True, 0.0, epsilon)
    found_variance = (inverse.detach().double().pow(-2) - epsilon).clamp_(min=0.0)
    follow(mode, mean, variance, found_mean, found_variance, momentum)
    return y
