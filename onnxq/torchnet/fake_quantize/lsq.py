"""LSQ, "Learned Step Size Quantization" (Esser et al. 2020): the scale is trained with the weights.

With r = x / scale, the scale gets from each value  round(r) - r inside the range, and its lower or upper end outside.
The sum is multiplied by 1 / sqrt(N * qmax), N being the number of values that share the scale: of the weight, or of one
sample of an activation. So it depends neither on the batch size nor on how many processes share a batch. With the
argument use_grad_scaling=0 it is the plain sum. Weights and activations get the gradient of the result inside the
range, and zero outside.
"""

from __future__ import annotations

import math

from torch import Tensor

from onnxq.torchnet.fake_quantize.base import FAKE_QUANTIZERS
from onnxq.torchnet.fake_quantize.functions import learnt_scale
from onnxq.torchnet.fake_quantize.layout import Layout
from onnxq.torchnet.fake_quantize.learnt import LearntScaleBase


@FAKE_QUANTIZERS.register("lsq")
class Lsq(LearntScaleBase):
    """A learnt scale; the zero point, if there is one, stays."""

    def quantize(self, x: Tensor, scale: Tensor, zero_point: Tensor, layout: Layout) -> Tensor:
        factor = self.gradient_factor(layout)
        return learnt_scale(x, scale, zero_point, self.spec, factor=factor, rounded=False)

    def gradient_factor(self, layout: Layout) -> float:
        """1 / sqrt(N * qmax), or 1 where the argument says so; kinds made of this one may not have it."""
        if not dict(self.settings.arguments).get("use_grad_scaling", 1.0):
            return 1.0
        low, high = self.spec.ends
        return 1 / math.sqrt(max(1, self._sharing(layout)) * (high or -low))  # int1 is [-1, 0]

    def _sharing(self, layout: Layout) -> int:
        """How many values of a weight, or of one sample, have the same scale."""
        if layout.size is not None:
            return layout.size
        shape = list(layout.shape)
        if layout.axis is not None:
            shape[layout.axis] = 1
        if self.role in ("activation", "output") and shape:
            shape[0] = 1
        return math.prod(shape)
