"""Activations of the com.microsoft domain, which onnxruntime's optimizers write."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from onnxq.torchnet.call import Call
from onnxq.torchnet.registry import Kernel, op

MICROSOFT = "com.microsoft"


@op("Gelu", domain=MICROSOFT)
def gelu(call: Call) -> Kernel:
    return functional.gelu


@op("BiasGelu", domain=MICROSOFT)
def bias_gelu(call: Call) -> Kernel:
    return lambda x, bias: functional.gelu(x + bias)


@op("FastGelu", domain=MICROSOFT)
def fast_gelu(call: Call) -> Kernel:
    """With or without a bias."""
    if not call.has_input(1):
        return partial(functional.gelu, approximate="tanh")
    return lambda x, bias: functional.gelu(x + bias, approximate="tanh")


@op("QuickGelu", domain=MICROSOFT)
def quick_gelu(call: Call) -> Kernel:
    alpha = call.attribute("alpha", 1.702)

    def run(x: Tensor) -> Tensor:
        return x * torch.sigmoid(x * alpha)

    return run
