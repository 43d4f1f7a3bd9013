"""Normalization: over the batch, an instance, a layer, a group, a norm, or neighbouring channels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from onnxq.torchnet.call import Call
from onnxq.torchnet.ops.batch_statistics import batch_statistics, is_live, live_batch_norm, normalize
from onnxq.torchnet.ops.widen import widened
from onnxq.torchnet.registry import Kernel, op
from onnxq.torchnet.values import torch_dtype

_MEAN, _VARIANCE = 3, 4


# ---- over the batch --------------------------------------------------------------------------------------------------


@op("BatchNormalization", since=1)
def batch_normalization(call: Call) -> Kernel:
    """Opsets 1 to 15. `training_mode` and, before opset 14, more than one output ask for the batch's statistics."""
    call.keep_fixed(_MEAN, _VARIANCE)
    epsilon, momentum = float(call.attribute("epsilon", 1e-5)), float(call.attribute("momentum", 0.9))
    if call.version < 9 and not call.attribute("spatial", 1):
        return _batch_norm_per_position(call, epsilon)
    if call.attribute("training_mode", 0) if call.version >= 14 else call.has_output(1):
        return _batch_norm_in_training_mode(epsilon, momentum)
    mode = call.mode
    # Statistics that come from elsewhere are not the net's to learn.
    own = call.constant(_MEAN) is not None and call.constant(_VARIANCE) is not None

    def run(x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        if own and is_live(call):
            return live_batch_norm(mode, x, gamma, beta, mean, variance, epsilon, momentum)
        return frozen_batch_norm(x, gamma, beta, mean, variance, epsilon)

    return run


def frozen_batch_norm(x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, variance: Tensor, epsilon: float) -> Tensor:
    """Batch norm with given statistics: torch's own kernel where one type goes through it."""
    if x.dim() < 2:  # a vector is a batch of one channel
        return frozen_batch_norm(x.unsqueeze(1), gamma, beta, mean, variance, epsilon).squeeze(1)
    if x.dtype == gamma.dtype == mean.dtype and not (mean.requires_grad or variance.requires_grad):
        return functional.batch_norm(x, mean, variance, gamma, beta, False, 0.0, epsilon)
    wide = torch.promote_types(torch.promote_types(x.dtype, mean.dtype), torch.float32)
    y = normalize(x.to(wide), gamma.to(wide), beta.to(wide), mean.to(wide), variance.to(wide), epsilon)
    return y.to(x.dtype)


def _batch_norm_in_training_mode(epsilon: float, momentum: float) -> Kernel:
    def run(x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, ...]:
        wide = torch.promote_types(x.dtype, torch.float32)
        found_mean, found_variance = batch_statistics(x.to(wide))
        y = normalize(x.to(wide), gamma.to(wide), beta.to(wide), found_mean, found_variance, epsilon).to(x.dtype)
        running_mean = (mean * momentum + found_mean * (1 - momentum)).to(mean.dtype)
        running_variance = (variance * momentum + found_variance * (1 - momentum)).to(variance.dtype)
        # Before opset 14 there were two more outputs.
        return y, running_mean, running_variance, found_mean.to(x.dtype), found_variance.to(x.dtype)

    return run


def _batch_norm_per_position(call: Call, epsilon: float) -> Kernel:
    """spatial=0: every position of a channel has statistics of its own."""
    if call.has_output(1):
        raise call.unsupported("spatial=0 together with the statistics of the batch")

    def run(x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        shape = (1, *x.shape[1:])
        scale = gamma.reshape(shape) * torch.rsqrt(variance.reshape(shape) + epsilon)
        return (x - mean.reshape(shape)) * scale + beta.reshape(shape)

    return run


# ---- over a sample ---------------------------------------------------------------------------------------------------


@op("InstanceNormalization", since=1)
def instance_normalization(call: Call) -> Kernel:
    epsilon = float(call.attribute("epsilon", 1e-5))

    def run(x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
        # One channel per group is the same sum, and also works for one value per channel. torch.nn's own function
        # refuses a single value.
        return torch.group_norm(x, x.shape[1], scale, bias, epsilon)

    return run


@op("GroupNormalization", since=18)
def group_normalization_of_groups(call: Call) -> Kernel:
    """Opsets 18 to 20: one scale and bias for each group."""
    groups, epsilon = int(call.attribute("num_groups")), float(call.attribute("epsilon", 1e-5))

    def run(x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
        repeats = x.shape[1] // groups
        if scale.shape[0] != x.shape[1]:
            scale, bias = scale.repeat_interleave(repeats), bias.repeat_interleave(repeats)
        return torch.group_norm(x, groups, scale, bias, epsilon)

    return run


@op("GroupNormalization", since=21)
def group_normalization(call: Call) -> Kernel:
    groups, epsilon = int(call.attribute("num_groups")), float(call.attribute("epsilon", 1e-5))
    stash = _stash_type(call)

    def run(x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
        if x.dtype == stash:
            return torch.group_norm(x, groups, scale, bias, epsilon)
        shape = (-1, *[1] * (x.dim() - 2))
        normalized = torch.group_norm(x.to(stash), groups, None, None, epsilon).to(x.dtype)
        return normalized * scale.reshape(shape) + bias.reshape(shape)

    return run


@op("LayerNormalization", since=1)
def layer_normalization(call: Call) -> Kernel:
    """Opset 17; older files of onnxruntime have the same operator under the same name."""
    axis, epsilon = int(call.attribute("axis", -1)), float(call.attribute("epsilon", 1e-5))
    stash = _stash_type(call)
    with_statistics = call.has_output(1) or call.has_output(2)

    def run(x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor | tuple[Tensor, ...]:
        first = axis % x.dim()
        inner = x.shape[first:]
        fits = scale.shape == inner and (bias is None or bias.shape == inner)
        if fits and x.dtype == stash and not with_statistics:
            return functional.layer_norm(x, inner, scale, bias, epsilon)
        wide = x.to(stash)
        normalized = functional.layer_norm(wide, inner, None, None, epsilon).to(x.dtype)
        y = normalized * scale if bias is None else normalized * scale + bias
        if not with_statistics:
            return y
        variance, mean = torch.var_mean(wide, dim=list(range(first, x.dim())), correction=0, keepdim=True)
        return y, mean, torch.rsqrt(variance + epsilon)

    return run


@op("RMSNormalization", since=23)
def rms_normalization(call: Call) -> Kernel:
    axis, epsilon = int(call.attribute("axis", -1)), float(call.attribute("epsilon", 1e-5))
    stash = _stash_type(call)

    def run(x: Tensor, scale: Tensor) -> Tensor:
        inner = x.shape[axis % x.dim() :]
        if scale.shape == inner and x.dtype == stash:
            return functional.rms_norm(x, inner, scale, epsilon)
        return functional.rms_norm(x.to(stash), inner, None, epsilon).to(x.dtype) * scale

    return run


def _stash_type(call: Call) -> torch.dtype:
    """The type of the first stage; a float64 model is computed in float64 all the same."""
    declared = call.element_type(0)
    if declared is not None and declared == np.float64:
        return torch.float64
    return torch_dtype(int(call.attribute("stash_type", 1))) or torch.float32


# ---- norms -----------------------------------------------------------------------------------------------------------


@op("LpNormalization", since=1)
def lp_normalization(call: Call) -> Kernel:
    """x over its norm along an axis; 0 where the norm is 0."""
    axis, p = int(call.attribute("axis", -1)), int(call.attribute("p", 2))
    if p not in (1, 2):
        raise call.unsupported(f"p={p}; ONNX allows 1 and 2")

    def run(x: Tensor) -> Tensor:
        norm = torch.linalg.vector_norm(x, p, dim=axis, keepdim=True)
        return x / torch.where(norm == 0, torch.ones_like(norm), norm)

    return run


@op("MeanVarianceNormalization", since=1)
def mean_variance_normalization(call: Call) -> Kernel:
    axes = _mean_variance_axes(call)

    def run(x: Tensor) -> Tensor:
        dims = axes(x.dim())
        variance, mean = torch.var_mean(x, dim=dims, correction=0, keepdim=True)
        # The operator has no epsilon; the function of the standard adds 1e-9 to the deviation.
        return (x - mean) / (torch.sqrt(variance) + 1e-9)

    return widened(call, run, half=True)  # half precision has no 1e-9, and rounds the mean


def _mean_variance_axes(call: Call) -> Callable[[int], list[int]]:
    if call.version >= 9:
        chosen: Sequence[int] = call.attribute("axes", [0, 2, 3])
        return lambda rank: list(chosen)
    if not call.attribute("normalize_variance", 1):
        raise call.unsupported("normalize_variance=0")
    if call.attribute("across_channels", 0):
        return lambda rank: list(range(1, rank))
    return lambda rank: list(range(2, rank))


@op("LRN", since=1)
def lrn(call: Call) -> Kernel:
    """Local response normalization over channels; with an even size there is one channel more behind than before."""
    size = int(call.attribute("size"))
    alpha, beta = float(call.attribute("alpha", 1e-4)), float(call.attribute("beta", 0.75))
    bias = float(call.attribute("bias", 1.0))
    before, behind = (size - 1) // 2, size // 2

    def run(x: Tensor) -> Tensor:
        squares = functional.pad(x.square().flatten(2).transpose(1, 2), (before, behind))
        mean = functional.avg_pool1d(squares, size, stride=1).transpose(1, 2).reshape(x.shape)
        return x / (bias + alpha * mean).pow(beta)

    return widened(call, run, half=True)  # squares of half precision overflow where the quotient does not
