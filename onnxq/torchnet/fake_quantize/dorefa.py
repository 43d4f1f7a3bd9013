"""DoReFa-Net (Zhou et al. 2016): the weights that are trained go through tanh and are divided by their largest.

    w = c * tanh(v) / max |tanh v| + correction          v is trained, w is quantized as by `fixed`

`latent(w)` gives the v of a network that has been trained already: c is its largest |w|, and `correction` makes up for
the rounding of float32, so that the first w is the given one bit for bit. v is chosen so that dw/dv is 1 at zero for
weights below 0.9: learning rates keep their meaning. The divisor counts as a constant in the gradient. Before `latent`
was called, values are ordinary weights.
"""

from __future__ import annotations

import torch
from torch import Tensor

from onnxq.torchnet.fake_quantize.base import FAKE_QUANTIZERS, FakeQuantize
from onnxq.types.qparams import QParams

STEEPEST = 0.9
"""The largest tanh v at the start: beyond it, tanh is too flat to learn."""


@FAKE_QUANTIZERS.register("dorefa")
class DoReFa(FakeQuantize):
    """tanh in front of a fixed quantizer, for weights."""

    correction: Tensor | None
    largest: Tensor

    def init_qparams(self, qparams: QParams) -> None:
        super().init_qparams(qparams)
        self.register_buffer("largest", torch.zeros(()))
        self.register_buffer("correction", None)

    def transform(self, x: Tensor) -> Tensor:
        return x if self.correction is None else self._squashed(x) + self.correction

    @torch.no_grad()
    def latent(self, values: Tensor) -> Tensor:
        values = values.detach()
        weights = values.float()
        self.largest = weights.abs().max() if weights.numel() else weights.new_zeros(())
        if not bool(self.largest > 0):
            self.largest = torch.ones_like(self.largest)
        reach = self.largest.clamp(max=STEEPEST)
        start = torch.atanh(weights / self.largest * reach).to(values.dtype)
        missing = weights - self._squashed(start.float())
        self.correction = torch.where(missing == 0, torch.copysign(missing, weights), missing)  # keeps -0
        return start

    def _squashed(self, x: Tensor) -> Tensor:
        bent = torch.tanh(x)
        divisor = bent.detach().abs().amax().clamp(min=torch.finfo(torch.float32).tiny)
        return bent * (self.largest / divisor)
