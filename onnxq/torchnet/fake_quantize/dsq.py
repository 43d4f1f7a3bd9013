"""DSQ, "Differentiable Soft Quantization" (Gong et al. 2019): steps of tanh stand for rounding in the gradient.

With u the position of a value between two integers (0 .. 1), t = 1 / (1 - alpha) and k = ln((t + 1) / (t - 1)),
rounding is taken for  1/2 + t/2 * tanh(k * (u - 1/2)), whose slope is the gradient: steep where rounding jumps, flat
between. A small alpha means hard steps. Values outside the range have no gradient, and the scale is not learnt.
Grids that are not evenly spaced (fp8, fp16, bf16, bfp16, nnie8) pass gradients straight through.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from onnxq.torchnet.fake_quantize.base import FAKE_QUANTIZERS, FakeQuantize
from onnxq.torchnet.fake_quantize.functions import inside
from onnxq.torchnet.fake_quantize.grids import grid_values
from onnxq.torchnet.fake_quantize.layout import Layout
from onnxq.types.spec import QuantSpec


class SoftSteps(torch.autograd.Function):
    """Rounded values with the gradient of soft steps."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, zero_point: Tensor, spec: QuantSpec, alpha: float) -> Tensor:
        ctx.spec, ctx.alpha = spec, alpha
        ctx.save_for_backward(x, scale, zero_point)
        return grid_values(x, scale, zero_point, spec)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        x, scale, zero_point = ctx.saved_tensors
        kept = inside(x, scale, zero_point, ctx.spec, rounded=True)(gradient)
        jump = 0.0 if ctx.spec.rounding == "floor" else 0.5
        slope = soft_slope((x / scale).sub_(jump), ctx.alpha)
        # An infinity has no position between two integers, and no gradient either.
        return kept.mul_(slope.nan_to_num_(0.0)), None, None, None, None


def soft_slope(distance: Tensor, alpha: float) -> Tensor:
    """The slope of the soft steps at these distances from a jump; all jumps are a whole number apart."""
    height = 1 / (1 - alpha)
    steepness = math.log((height + 1) / (height - 1))
    nearest = distance - distance.round()
    return 0.5 * height * steepness * (1 - torch.tanh(steepness * nearest).square())


@FAKE_QUANTIZERS.register("dsq")
class Dsq(FakeQuantize):
    """Soft steps in the gradient; forward rounds."""

    def quantize(self, x: Tensor, scale: Tensor, zero_point: Tensor, layout: Layout) -> Tensor:
        if not self.spec.evenly_spaced:
            return super().quantize(x, scale, zero_point, layout)
        alpha = self.settings.argument("alpha")
        return SoftSteps.apply(x, scale, zero_point, self.spec, alpha)  # type: ignore[no-untyped-call]
