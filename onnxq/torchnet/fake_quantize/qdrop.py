"""QDrop (Wei et al. 2022): while training, each value is quantized with probability p and stays float otherwise.

The scale is learnt as in LSQ. A value that stays float passes its gradient on unchanged. Nothing is dropped in eval
mode, nor with p = 1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from onnxq.torchnet.chance import by_chance
from onnxq.torchnet.fake_quantize.base import FAKE_QUANTIZERS
from onnxq.torchnet.fake_quantize.lsq import Lsq


@FAKE_QUANTIZERS.register("qdrop")
class QDrop(Lsq):
    """A learnt scale, and values that are left out at random (torch's generator) while training."""

    def quantized(self, values: Tensor) -> Tensor:
        result = super().quantized(values)
        probability = self.settings.argument("p")
        if not self.training or probability == 1:
            return result
        return torch.where(by_chance(values, probability), result, values)
