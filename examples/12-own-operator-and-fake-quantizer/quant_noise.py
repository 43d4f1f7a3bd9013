"""A fake-quantizer: in each step of training, a random part of the weights is quantized and the rest is left float.

The gradients of the part that is left float are exact. Outside of training every weight is quantized. The idea is from
"Training with Quantization Noise for Extreme Model Compression" (Fan et al. 2020).
"""

import torch
from torch import Tensor

from onnxq.torchnet.fake_quantize import FAKE_QUANTIZERS, FakeQuantize
from onnxq.types.fake_quantizers import WEIGHTS, Argument, Kind, add_kind

add_kind(
    Kind(
        "quant_noise",
        "a random part of the weights is quantized in each step",
        "the same numbers as fixed",
        roles=WEIGHTS,
        arguments=(Argument("part", 0.8, high=1.0, closed=True),),
    )
)


@FAKE_QUANTIZERS.register("quant_noise")
class QuantNoise(FakeQuantize):
    """The scale, its observer and the numbers for the file come from the base class."""

    def quantize(self, x: Tensor, scale: Tensor, zero_point: Tensor, layout: object) -> Tensor:
        quantized = super().quantize(x, scale, zero_point, layout)
        if not self.training:
            return quantized
        chosen = torch.rand_like(x) < self.settings.argument("part")
        return torch.where(chosen, quantized, x)
