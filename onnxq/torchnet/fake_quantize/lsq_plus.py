"""LSQ+ (Bhalgat et al. 2020): the scale and the zero point are trained with the weights.

Values outside the range give the zero point the gradient -scale, those inside none; the sum has the factor of LSQ. The
parameter is a real number, which forward rounds and limits to the integers of the format, straight through. A symmetric
format has no zero point: there LSQ+ is LSQ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from onnxq.torchnet.fake_quantize.base import FAKE_QUANTIZERS
from onnxq.torchnet.fake_quantize.functions import stand_in
from onnxq.torchnet.fake_quantize.lsq import Lsq
from onnxq.types.qparams import QParams


@FAKE_QUANTIZERS.register("lsq_plus")
class LsqPlus(Lsq):
    """A learnt scale and a learnt zero point."""

    lr_multipliers: ClassVar[Mapping[str, float]] = {"zero_point": 100.0}  # it counts steps

    def init_qparams(self, qparams: QParams) -> None:
        super().init_qparams(qparams)
        if not self.spec.symmetric:
            calibrated = self.zero_point.to(torch.float32)
            del self.zero_point
            self.zero_point = nn.Parameter(calibrated)

    def qparams(self) -> tuple[Tensor, Tensor]:
        scale, zero_point = super().qparams()
        if self.spec.symmetric:
            return scale, zero_point
        whole = zero_point.detach().round().clamp_(self.spec.qmin, self.spec.qmax)
        return scale, stand_in(zero_point, whole)
