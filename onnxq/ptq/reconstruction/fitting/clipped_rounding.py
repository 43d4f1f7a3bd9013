"""Roundings and ranges that are learnt by signs: AutoRound (Cheng et al. 2023).

    high = alpha * largest       low = beta * least         of the values that share a scale
    s = (high - low) / steps     z = round(qmin - low / s)  symmetric: s = alpha * full, z = 0
    q = clip(round(w / s + V) + z, qmin, qmax)              round passes gradients through

`largest` and `least` are those of the weights, or what the present range covers where that is more. In train mode the
net multiplies with a tensor that is made once for each step; its gradient is all that the step needs
(`onnxq.ptq.reconstruction.fitting.offset_steps`).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from onnxq.numerics import quantize, storage_dtype
from onnxq.ptq.reconstruction.fitting.offset_steps import Offsets
from onnxq.torchnet.fake_quantize import FakeQuantize
from onnxq.torchnet.fake_quantize.layout import layout_of
from onnxq.types import QParams

LEAST = 0.1
"""What alpha and beta may fall to: a scale of 0 has no numbers."""


class ClippedRounding(nn.Module):
    """The quantizer of one weight; until `keep` is called, eval mode gives the numbers that it has now."""

    def __init__(self, module: FakeQuantize, values: np.ndarray, reference: np.ndarray, *, clips: bool) -> None:
        """`values` are rounded by `module` now, `reference` is the float weight; `clips` lets the range be learnt."""
        super().__init__()
        held = module.to_qparams()
        self.held, self.spec, self.clips = held, held.spec, clips
        scale, zero = (torch.from_numpy(np.array(part, np.float32)) for part in (held.scale, held.zero_point))
        self._layout = layout_of(values.shape, scale, self.spec, module.tensor)
        self.scale, self.zero_point = self._layout.spread(scale), self._layout.spread(zero)
        whole = torch.from_numpy(np.array(reference, np.float32))
        exact = self._layout.split(whole).contiguous()
        self._offsets = Offsets(exact, torch.zeros_like(exact), self.spec)
        low, high = (self._layout.spread(end) for end in self._layout.ranges(whole))
        qmin, qmax = float(self.spec.qmin), float(self.spec.qmax)
        if self.spec.symmetric:
            covering = torch.maximum(high, -low) / float(self.spec.steps)
            self.high = torch.maximum(covering, self.scale.abs()).copysign(self.scale)
            self.low = torch.zeros_like(self.high)
            self.alpha, self.beta = self.scale / self.high, torch.ones_like(self.high)
        else:
            present_high, present_low = (qmax - self.zero_point) * self.scale, (qmin - self.zero_point) * self.scale
            self.high = torch.maximum(high.clamp(min=0), present_high)
            self.low = torch.minimum(low.clamp(max=0), present_low)
            self.alpha, self.beta = _part(present_high, self.high), _part(present_low, self.low)
        self._numbers = torch.from_numpy(quantize(values, held).astype(np.float32))
        self._found: QParams | None = None
        self._written: Tensor | None = None
        self._moving: Tensor | None = None

    @torch.no_grad()
    def begin(self) -> None:
        """Make the values of a step, which several batches may multiply with, and whose gradient they add up."""
        self._moving = self._layout.join(self._offsets.values(*self._grid())).requires_grad_()

    @torch.no_grad()
    def descend(self, rate: float) -> None:
        """Move what is learnt by `rate`, against the signs of the gradients of the step."""
        assert self._moving is not None
        gradient, self._moving = self._moving.grad, None
        if gradient is None:
            return
        scale, zero = self._grid()
        to_scale, to_zero = self._offsets.descend(self._layout.split(gradient), scale, zero, rate)
        if not self.clips:
            return
        if self.spec.symmetric:
            self.alpha.sub_((to_scale * self.high).sign(), alpha=rate).clamp_(LEAST, 1.0)
            return
        low, steps = self.beta * self.low, float(self.spec.qmax - self.spec.qmin)
        free = (float(self.spec.qmin) - low / scale).round()
        to_zero = to_zero * (free == zero)  # a zero point at the end of the format stays there
        to_width = (to_scale + to_zero * low / scale.square()) / steps
        to_low = -to_width - to_zero / scale
        self.alpha.sub_((to_width * self.high).sign(), alpha=rate).clamp_(LEAST, 1.0)
        self.beta.sub_((to_low * self.low).sign(), alpha=rate).clamp_(LEAST, 1.0)

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self._moving is not None:
            return self._moving.to(x.dtype)
        if self._written is None:
            self._written = self._kept_values()
        return self._written.to(x.dtype)

    def _grid(self) -> tuple[Tensor, Tensor]:
        """Scale and zero point, which is whole; the present ones where the range is not learnt."""
        if not self.clips:
            return self.scale, self.zero_point
        if self.spec.symmetric:
            return self.alpha * self.high, self.zero_point
        high, low = self.alpha * self.high, self.beta * self.low
        qmin, qmax = float(self.spec.qmin), float(self.spec.qmax)
        scale = ((high - low) / (qmax - qmin)).clamp(min=torch.finfo(torch.float32).tiny)
        return scale, (qmin - low / scale).round().clamp(qmin, qmax)

    @torch.no_grad()
    def keep(self) -> None:
        """From now on eval mode gives what is learnt at this moment."""
        scale, zero = self._grid()
        self._numbers = self._layout.join(self._offsets.steps(scale, zero)).clone()
        shape = self.held.scale.shape
        self._found = QParams(
            self.spec,
            scale.reshape(shape).numpy().copy(),
            zero.expand_as(scale).reshape(shape).numpy().astype(self.held.zero_point.dtype),
        )
        self._written = None

    def kept(self) -> tuple[Tensor, QParams | None]:
        """What eval mode gives, for `restore`."""
        return self._numbers, self._found

    def restore(self, kept: tuple[Tensor, QParams | None]) -> None:
        self._numbers, self._found = kept
        self._written = None

    def qparams(self) -> QParams:
        """Scale and zero point of what was kept."""
        return self.held if self._found is None else self._found

    def numbers(self) -> np.ndarray:
        """The integers of the format that were kept."""
        return self._numbers.numpy().astype(storage_dtype(self.spec))

    def _kept_values(self) -> Tensor:
        found = self.qparams()
        scale, zero = (torch.from_numpy(np.array(part, np.float32)) for part in (found.scale, found.zero_point))
        split = self._layout.split(self._numbers)
        return self._layout.join((split - self._layout.spread(zero)) * self._layout.spread(scale))


def _part(present: Tensor, full: Tensor) -> Tensor:
    """How much of a range is covered; all of it where there is none."""
    return torch.where(full == 0, torch.ones_like(full), present / full).clamp(LEAST, 1.0)
