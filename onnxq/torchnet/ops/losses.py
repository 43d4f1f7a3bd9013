"""Losses as nodes of a model: negative log likelihood, with or without the softmax before it."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from onnxq.torchnet.call import Call
from onnxq.torchnet.registry import Kernel, op

REDUCTIONS = ("none", "mean", "sum")

_NO_CLASS = -(2**31)
"""What torch takes for "ignore nothing": a class that no target has."""


@op("NegativeLogLikelihoodLoss", since=12)
def negative_log_likelihood_loss(call: Call) -> Kernel:
    return _likelihood(call)


@op("SoftmaxCrossEntropyLoss", since=12)
def softmax_cross_entropy_loss(call: Call) -> Kernel:
    """The second output is the logarithm of the softmax."""
    loss = _likelihood(call)

    def run(scores: Tensor, target: Tensor, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
        logarithms = torch.log_softmax(scores, 1)
        return loss(logarithms, target, weight), logarithms

    return run


def _likelihood(call: Call) -> Callable[..., Tensor]:
    reduction = call.attribute("reduction", "mean")
    if reduction not in REDUCTIONS:
        raise call.unsupported(f"reduction '{reduction}'; ONNX knows {', '.join(REDUCTIONS)}")
    ignored = call.attribute("ignore_index", _NO_CLASS)
    call.keep_fixed(2)

    def run(logarithms: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        return F.nll_loss(logarithms, target.long(), weight, ignore_index=ignored, reduction=reduction)

    return run
