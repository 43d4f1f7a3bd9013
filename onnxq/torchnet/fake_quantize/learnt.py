"""What kinds that learn a scale have in common: a scale that stays legal wherever an optimizer puts its parameter.

    scale = max(|parameter|, floor)         floor: `minimum_scale`, or the smallest scale that onnxq writes
    scale = sign(parameter) * scale         where the format has scales of either sign
    scale = 2^round(log2(scale))            where the format has power-of-two scales
    scale = legal_scale(scale)              where the format says which there are (nnie8: powers of 2^(1/16))

Limit and rounding are straight through: the gradient reaches the parameter as if they were not there, so that a scale
can come back from its floor.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from onnxq.numerics import MIN_SCALE
from onnxq.numerics.in_torch import nearest_power_of_two
from onnxq.numerics.ranges import with_minimum_scale
from onnxq.torchnet.fake_quantize.base import FakeQuantize
from onnxq.torchnet.fake_quantize.functions import stand_in
from onnxq.types.granularity import PerChannel
from onnxq.types.qparams import QParams
from onnxq.types.spec import QuantSpec


class LearntScaleBase(FakeQuantize):
    """A fake-quantizer whose scale is a parameter; while observing is on, the range of the values sets it anew."""

    observes_by_default = False

    def init_qparams(self, qparams: QParams) -> None:
        super().init_qparams(qparams)
        self.floor = smallest_scale(self.spec, self.minimum_scale)
        if has_learnt_scale(self.spec):
            calibrated = self.scale.clone()
            del self.scale
            self.scale = nn.Parameter(calibrated)

    def qparams(self) -> tuple[Tensor, Tensor]:
        if not has_learnt_scale(self.spec):
            return self.scale, self.zero_point
        positive = self.scale.abs()
        legal = stand_in(positive, legal_scale(positive.detach(), self.spec, self.floor))
        return legal.copysign(self.scale.detach()) if self.spec.signed_scale else legal, self.zero_point


def has_learnt_scale(spec: QuantSpec) -> bool:
    """Whether the numbers of a format follow its scale; where blocks have scales of their own they hardly do."""
    return spec.has_scale and not spec.dynamic


def smallest_scale(spec: QuantSpec, minimum: float) -> float:
    """The floor of a learnt scale: what the placement asks for, raised to what the format can have."""
    if not spec.has_scale:
        return MIN_SCALE
    single = QParams(spec.replace(granularity=PerChannel(0), dynamic=False), np.array([MIN_SCALE]), np.zeros(1))
    return float(with_minimum_scale(single, minimum).scale[0])


def legal_scale(scale: Tensor, spec: QuantSpec, floor: float) -> Tensor:
    """The nearest scale that the format can have, not below `floor`."""
    limited = scale.clamp(min=floor)
    if spec.power_of_two:
        return nearest_power_of_two(limited)
    if not spec.format.any_scale and bool(limited.isfinite().all()):
        snapped = spec.format.legal_scale(limited.cpu().numpy()).astype(np.float32)
        return torch.from_numpy(np.asarray(np.maximum(snapped, np.float32(floor)))).to(scale.device)
    return limited
