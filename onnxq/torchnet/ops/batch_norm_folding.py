"""Layers whose batch norm is folded for the quantizer of their weight, and apart for training: domain `onnxq`.

    factor          s = gamma / sqrt(variance + epsilon), one number for each output channel
    FoldedWeight    W s
    FoldedBias      beta + (b - mean) s
    ConvBatchNorm   frozen: layer(x, folded weight, folded bias)
                    live:   batch norm of layer(x, folded weight) / s + b, with the statistics of the batch

The folded values pass their quantizers between these operators. So the live output is what the batch norm makes of the
layer with quantized weights, and both agree where the batch has the running statistics (Krishnamoorthi 2018).
"""

from __future__ import annotations

import torch
from torch import Tensor

from onnxq.torchnet.call import Call
from onnxq.torchnet.ops.batch_statistics import is_live, live_batch_norm
from onnxq.torchnet.ops.convolution import conv, conv_transpose
from onnxq.torchnet.ops.product import gemm
from onnxq.torchnet.registry import Kernel, op

DOMAIN = "onnxq"

_LAYERS = {"Conv": conv, "ConvTranspose": conv_transpose, "Gemm": gemm}
_SMALLEST = 1e-12
"""A channel with a smaller factor is all zeros, whatever it is divided by."""


@op("FoldedWeight", since=1, domain=DOMAIN)
def folded_weight(call: Call) -> Kernel:
    call.keep_fixed(2)
    epsilon, axis = float(call.attribute("epsilon", 1e-5)), int(call.attribute("axis", 0))
    groups = int(call.attribute("groups", 1))

    def run(weight: Tensor, gamma: Tensor, variance: Tensor) -> Tensor:
        factor = _factor(gamma, variance, epsilon).to(weight.dtype)
        return weight * _over_outputs(factor, weight, axis % weight.dim(), groups)

    return run


@op("FoldedBias", since=1, domain=DOMAIN)
def folded_bias(call: Call) -> Kernel:
    call.keep_fixed(3, 4)
    epsilon = float(call.attribute("epsilon", 1e-5))

    def run(bias: Tensor | None, gamma: Tensor, beta: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        factor = _factor(gamma, variance, epsilon)
        moved = -mean.double() if bias is None else bias.double() - mean.double()
        return (beta.double() + moved * factor).to(beta.dtype)

    return run


@op("ConvBatchNorm", since=1, domain=DOMAIN)
def conv_batch_norm(call: Call) -> Kernel:
    call.keep_fixed(5, 6)
    kind = call.attribute("layer")
    if kind not in _LAYERS:
        raise call.unsupported(f"layer '{kind}' is not one of {', '.join(_LAYERS)}")
    layer = _LAYERS[kind](call)
    epsilon, momentum = float(call.attribute("epsilon", 1e-5)), float(call.attribute("momentum", 0.9))
    mode = call.mode

    def run(
        x: Tensor,
        weight: Tensor,
        folded: Tensor,
        gamma: Tensor,
        beta: Tensor,
        mean: Tensor,
        variance: Tensor,
        bias: Tensor | None = None,
    ) -> Tensor:
        if not is_live(call):
            return layer(x, weight, folded)
        y = layer(x, weight)
        shape = [-1 if axis == 1 else 1 for axis in range(y.dim())]
        factor = _factor(gamma, variance, epsilon).to(y.dtype)
        factor = torch.where(factor.abs() < _SMALLEST, torch.ones_like(factor), factor)
        y = y / factor.reshape(shape)
        if bias is not None:
            y = y + bias.reshape(shape)
        return live_batch_norm(mode, y, gamma, beta, mean, variance, epsilon, momentum)

    return run


def _factor(gamma: Tensor, variance: Tensor, epsilon: float) -> Tensor:
    """In float64, as the pass that folds for good computes it; it is one short vector."""
    return gamma.double() / torch.sqrt(variance.double() + epsilon)


def _over_outputs(factor: Tensor, weight: Tensor, axis: int, groups: int) -> Tensor:
    """The factor shaped to multiply a weight; see `onnxq.passes.channels`."""
    if groups == 1:
        return factor.reshape([-1 if position == axis else 1 for position in range(weight.dim())])
    # Row block g of a ConvTranspose belongs to group g and meets that group's part of the factor.
    rows = factor.reshape(groups, -1).repeat_interleave(weight.shape[0] // groups, dim=0)
    return rows.reshape(*rows.shape, *[1] * (weight.dim() - 2))
