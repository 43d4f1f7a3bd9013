"""A fake-quantizer: while training, noise stands for the error of rounding.

    y = clip(x + amount * scale * u)        u uniform in -1/2 .. 1/2, drawn anew at every step

The gradient needs no trick, because nothing is rounded. Outside of training values are rounded as by `fixed`. This is the
pseudo quantization noise of "Differentiable Model Compression via Pseudo Quantization Noise" (Defossez et al. 2021).
"""

import torch
from torch import Tensor

from onnxq.torchnet.fake_quantize import FAKE_QUANTIZERS, FakeQuantize
from onnxq.types.fake_quantizers import WEIGHTS, Argument, Kind, add_kind

add_kind(
    Kind(
        "noise",
        "noise as large as a step of the grid stands for rounding",
        "the same numbers as fixed",
        roles=WEIGHTS,
        arguments=(Argument("amount", 1.0),),
    )
)


@FAKE_QUANTIZERS.register("noise")
class Noise(FakeQuantize):
    """Scale and zero point, observing and the numbers for the file come from the base class."""

    def quantize(self, x: Tensor, scale: Tensor, zero_point: Tensor, layout: object) -> Tensor:
        if not self.training:
            return super().quantize(x, scale, zero_point, layout)
        noisy = x + self.settings.argument("amount") * scale * (torch.rand_like(x) - 0.5)
        low, high = (self.spec.qmin - zero_point) * scale, (self.spec.qmax - zero_point) * scale
        return torch.clamp(noisy, low, high)
