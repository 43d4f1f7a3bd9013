"""AdaRound, "Up or Down?" (Nagel et al. 2020): for every weight, whether it is rounded up or down.

    h    = clip(1.2 * sigmoid(alpha) - 0.1, 0, 1)                                  one alpha for each weight
    soft = clip(floor(x / scale) + h, low, high) * scale                           train mode
    hard = clip(floor(x / scale) + (1 if alpha >= 0 else 0), low, high) * scale    eval mode

With `deciding` on, train mode gives the hard values, and alpha the gradient of the soft ones: what is learnt from then
on counts for the numbers that will be written.

`latent(w)` makes the parameter alpha, with h the fraction of w / scale: hard rounding starts as the format's own
rounding, and the soft values as the weights themselves. Before, and in formats that are no integers, this is `fixed`.
The weights are not trained: the gradient of the result goes to alpha alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from onnxq.numerics.in_torch import affine_ratio, affine_values, round_in_place
from onnxq.torchnet.fake_quantize.base import FAKE_QUANTIZERS, FakeQuantize
from onnxq.torchnet.fake_quantize.functions import stand_in
from onnxq.torchnet.fake_quantize.layout import Layout, layout_of
from onnxq.types.qparams import QParams

STRETCH_LOW, STRETCH_HIGH = -0.1, 1.1
UNDECIDED = 1e-3
"""How far below zero an alpha starts whose fraction says up and whose format rounds down."""


@FAKE_QUANTIZERS.register("adaround")
class AdaRound(FakeQuantize):
    """Learnt rounding for weights; the scale stays."""

    observes_by_default = False
    lr_multipliers: ClassVar[Mapping[str, float]] = {"alpha": 1000.0}  # from one side of 0 to the other
    alpha: nn.Parameter | None

    def init_qparams(self, qparams: QParams) -> None:
        super().init_qparams(qparams)
        self.register_parameter("alpha", None)
        self.deciding = False

    @torch.no_grad()
    def latent(self, values: Tensor) -> Tensor:
        if self.spec.evenly_spaced:
            layout, ratio, _ = self._ratio(values.detach().float())
            lower = ratio.floor()
            fraction = ratio - lower
            up = round_in_place(ratio, self.spec.rounding) > lower
            likely = (fraction - STRETCH_LOW) / (STRETCH_HIGH - STRETCH_LOW)
            start = torch.log(likely / (1 - likely))
            start = torch.where(up, start.clamp(min=0.0), start.clamp(max=-UNDECIDED))
            self.alpha = nn.Parameter(layout.join(start).contiguous())
        return values

    @property
    def trains_values(self) -> bool:
        return self.alpha is None

    def rounding(self) -> Tensor:
        """h of every weight: 0 is down, 1 is up."""
        assert self.alpha is not None
        stretched = (STRETCH_HIGH - STRETCH_LOW) * torch.sigmoid(self.alpha) + STRETCH_LOW
        return stretched.clamp(0.0, 1.0)

    def regularization(self, beta: float) -> Tensor:
        """The sum of 1 - |2 h - 1|^beta: what makes every weight decide; 0 before `latent` was called."""
        if self.alpha is None:
            return self.scale.new_zeros(())
        return (1 - (2 * self.rounding() - 1).abs().pow(beta)).sum()

    def quantized(self, values: Tensor) -> Tensor:
        if self.alpha is None:
            return super().quantized(values)
        layout, ratio, scale = self._ratio(values.detach())
        if not self.training:
            return layout.join(affine_values(self._hard(layout, ratio), scale))
        soft = self._limited(ratio.floor_() + layout.split(self.rounding()), layout)
        if self.deciding:
            hard = self._hard(layout, ratio)  # the ratio is whole by now
            soft = stand_in(soft, hard)
        return layout.join(soft * scale)

    @torch.no_grad()
    def export_values(self, x: Tensor) -> Tensor:
        """The weight where the format's own rounding brings it to the learnt number, else the middle of what does."""
        if self.alpha is None:
            return super().export_values(x)
        values = x.detach().float()
        layout, ratio, scale = self._ratio(values)
        own = round_in_place(ratio.clone(), self.spec.rounding)
        hard = self._hard(layout, ratio)
        middle = 0.5 if self.spec.rounding == "floor" else 0.0
        return torch.where(layout.join(own == hard), values, layout.join((hard + middle) * scale))

    def _hard(self, layout: Layout, ratio: Tensor) -> Tensor:
        assert self.alpha is not None
        up = layout.split((self.alpha.detach() >= 0).float())
        return self._limited(ratio.floor_() + up, layout)

    def _limited(self, steps: Tensor, layout: Layout) -> Tensor:
        if self.spec.symmetric:
            return steps.clamp(self.spec.qmin, self.spec.qmax)
        zero_point = layout.spread(self.zero_point).to(steps.dtype)
        return steps.clamp(self.spec.qmin - zero_point, self.spec.qmax - zero_point)

    def _ratio(self, values: Tensor) -> tuple[Layout, Tensor, Tensor]:
        """The layout, x / scale within the range, and the scale, both ready for each other."""
        layout = layout_of(values.shape, self.scale, self.spec, self.tensor)
        scale, zero_point = layout.spread(self.scale), layout.spread(self.zero_point)
        return layout, affine_ratio(layout.split(values), scale, zero_point, self.spec), scale
