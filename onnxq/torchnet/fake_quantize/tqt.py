"""TQT, "Trained Quantization Thresholds" (Jain et al. 2020): the logarithm of a power-of-two scale is trained.

    scale = 2^ceil(log2 t) / 2^(bits - 1)         signed; unsigned: / 2^bits
    d y / d log2 t = scale * ln 2 * (round(r) - r where the range ends behind round(r); else its lower or upper end)

with r = x / scale. ceil is straight through. Values get the gradient of the result wherever they are rounded and not
cut off. log2 t starts half a unit below the calibrated power, in the middle of the thresholds that mean the same scale,
so that no first tiny step doubles it. The gradient is the sum over all values, as in the paper, which trains with Adam.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from onnxq.numerics.in_torch import power_of_two
from onnxq.torchnet.fake_quantize.base import FAKE_QUANTIZERS, FakeQuantize
from onnxq.torchnet.fake_quantize.functions import learnt_scale, stand_in
from onnxq.torchnet.fake_quantize.layout import Layout
from onnxq.torchnet.fake_quantize.learnt import smallest_scale
from onnxq.types.qparams import QParams

HIGHEST_EXPONENT = 100
"""Of a scale: the largest numbers of every format are still finite."""


@FAKE_QUANTIZERS.register("tqt")
class Tqt(FakeQuantize):
    """A learnt threshold; while observing is on, the range of the values sets it anew."""

    observes_by_default = False
    lr_multipliers: ClassVar[Mapping[str, float]] = {"log2_threshold": 100.0}  # a unit doubles the scale

    def init_qparams(self, qparams: QParams) -> None:
        super().init_qparams(qparams)
        if not self.spec.has_scale:
            return
        self.lowest_exponent = round(math.log2(smallest_scale(self.spec, self.minimum_scale)))
        self.log2_threshold = nn.Parameter(torch.empty_like(self.scale))
        del self.scale
        self.set_qparams(qparams)

    def set_qparams(self, qparams: QParams) -> None:
        if not self.spec.has_scale:
            return
        scale = torch.from_numpy(qparams.scale.copy())
        exponent = torch.frexp(scale)[1] - 1
        with torch.no_grad():
            self.log2_threshold.copy_(exponent + self.threshold_bits - 0.5)
            self.zero_point.copy_(torch.from_numpy(qparams.zero_point.copy()))

    @property
    def threshold_bits(self) -> int:
        """log2 of threshold / scale: the bits of a magnitude; a convention, as only the sum counts."""
        return self.spec.bits - 1 if self.spec.signed else self.spec.bits

    def qparams(self) -> tuple[Tensor, Tensor]:
        if not self.spec.has_scale:
            return self.scale, self.zero_point
        exponent = self.log2_threshold.detach().ceil() - self.threshold_bits
        scale = power_of_two(exponent.nan_to_num(0.0).clamp_(self.lowest_exponent, HIGHEST_EXPONENT))
        scale = scale.masked_fill_(exponent.isnan(), torch.nan)  # the loss is to show it
        # d scale / d log2 t = scale * ln 2
        return stand_in(self.log2_threshold * (scale * math.log(2)), scale), self.zero_point

    def quantize(self, x: Tensor, scale: Tensor, zero_point: Tensor, layout: Layout) -> Tensor:
        return learnt_scale(x, scale, zero_point, self.spec, factor=1.0, rounded=True)
