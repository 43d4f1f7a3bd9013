"""Roundings that are learnt: AdaRound, "Up or Down?" (Nagel et al. 2020), with all that does not change computed once.

    h     = clip(1.2 * sigmoid(alpha) - 0.1, 0, 1)                 one alpha for each weight
    soft  = (lower + h) * scale                                    while it is fitted
    hard  = (lower + (1 if alpha >= 0 else 0)) * scale             afterwards

`lower` and lower + 1 are the two numbers that a weight can become: the one that it has now, and its neighbour on the
side of the float weight. For a weight that was not rounded before, these are the two around it. alpha begins where h is
the place of the float weight between the two. At the ends of the format there is one number only.

    regularization(beta) = sum of 1 - |2 h - 1|^beta               0 when every weight has decided

Its gradient is written down here: half of the time of a step went into finding it.

`onnxq.torchnet.fake_quantize.adaround` is the same for training whole networks; it follows a weight that changes.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from onnxq.numerics import quantize, storage_dtype
from onnxq.torchnet.fake_quantize import FakeQuantize
from onnxq.torchnet.fake_quantize.layout import layout_of
from onnxq.types import QParams

_LOW, _HIGH = -0.1, 1.1


class SoftRounding(nn.Module):
    """The quantizer of one weight; before `fitted` is set, eval mode gives the numbers that it has now."""

    lower: Tensor
    room: Tensor
    start: Tensor
    scale: Tensor

    def __init__(self, module: FakeQuantize, values: np.ndarray, reference: np.ndarray) -> None:
        """`values` are rounded by `module` now; `reference` is the weight of the float model."""
        super().__init__()
        qparams = module.to_qparams()
        self.qparams = qparams
        steps = quantize(values, qparams).astype(np.float32)
        scale, zero_point = (_full(part, values.shape, qparams) for part in (qparams.scale, qparams.zero_point))
        start = torch.from_numpy(steps) - zero_point
        low, high = (float(end) - zero_point for end in (qparams.spec.qmin, qparams.spec.qmax))
        exact = torch.from_numpy(np.array(reference, np.float32)) / scale
        exact = torch.minimum(torch.maximum(exact, low), high)
        lower = torch.where(exact >= start, start, start - 1)
        fraction = (exact - lower).clamp(0.0, 1.0)
        likely = (fraction - _LOW) / (_HIGH - _LOW)
        for name, value in (("lower", lower), ("room", (lower + 1 <= high).float()), ("start", start)):
            self.register_buffer(name, value)
        self.register_buffer("scale", scale)
        self.zero_point = zero_point
        self.alpha = nn.Parameter(torch.log(likely / (1 - likely)))
        self.fitted = False

    def rounding(self) -> Tensor:
        """h of every weight: 0 is down, 1 is up."""
        return ((_HIGH - _LOW) * torch.sigmoid(self.alpha) + _LOW).clamp(0.0, 1.0)

    @torch.no_grad()
    def regularize(self, beta: float, weight: float) -> None:
        """Add the gradient of `weight` times the regularization to that of alpha."""
        likely = torch.sigmoid(self.alpha)
        side = (2 * (_HIGH - _LOW)) * likely + (2 * _LOW - 1)  # 2 h - 1 before it is clipped
        slope = likely * (1 - likely)
        slope *= side.abs() < 1
        slope *= side.abs().pow_(beta - 1).copysign_(side)
        slope *= -2 * (_HIGH - _LOW) * beta * weight
        self.alpha.grad = slope if self.alpha.grad is None else self.alpha.grad.add_(slope)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            return ((self.lower + self.rounding() * self.room) * self.scale).to(x.dtype)
        return (self._steps() * self.scale).to(x.dtype)

    def _steps(self) -> Tensor:
        if not self.fitted:
            return self.start
        return self.lower + (self.alpha.detach() >= 0).float() * self.room

    def numbers(self) -> np.ndarray:
        """The integers of the format."""
        return (self._steps() + self.zero_point).numpy().astype(storage_dtype(self.qparams.spec))


def _full(parameter: np.ndarray, shape: tuple[int, ...], qparams: QParams) -> Tensor:
    """A scale or zero point for every value."""
    scale = torch.from_numpy(np.array(parameter, np.float32))
    layout = layout_of(shape, scale, qparams.spec, "weight")
    split = layout.split(torch.zeros(shape))
    return layout.join(layout.spread(scale).expand(split.shape)).contiguous()
