"""Roundings and ranges that are learnt by signs: AutoRound (Cheng et al. 2023).

    high = alpha * largest       low = beta * least         of the values that share a scale
    s = (high - low) / steps     z = round(qmin - low / s)  symmetric: s = alpha * full, z = 0
    q = clip(round(w / s + V) + z, qmin, qmax)              round passes gradients through

`largest` and `least` are those of the weights, or what the present range covers where that is more.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from onnxq.numerics import quantize, storage_dtype
from onnxq.torchnet.fake_quantize import FakeQuantize
from onnxq.torchnet.fake_quantize.layout import layout_of
from onnxq.types import QParams

LEAST = 0.1
"""What alpha and beta may fall to: a scale of 0 has no numbers."""
HALF = 0.5


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
        exact = torch.from_numpy(np.array(reference, np.float32))
        self.exact = self._layout.split(exact)
        low, high = (self._layout.spread(end) for end in self._layout.ranges(exact))
        qmin, qmax = float(self.spec.qmin), float(self.spec.qmax)
        if self.spec.symmetric:
            self.high = torch.maximum(torch.maximum(high, -low) / qmax, self.scale)
            self.low = torch.zeros_like(self.high)
            alpha, beta = self.scale / self.high, torch.ones_like(self.high)
        else:
            present_high, present_low = (qmax - self.zero_point) * self.scale, (qmin - self.zero_point) * self.scale
            self.high = torch.maximum(high.clamp(min=0), present_high)
            self.low = torch.minimum(low.clamp(max=0), present_low)
            alpha, beta = _part(present_high, self.high), _part(present_low, self.low)
        self.alpha, self.beta = nn.Parameter(alpha), nn.Parameter(beta)
        self.offset = nn.Parameter(torch.zeros_like(self.exact))
        self._numbers = torch.from_numpy(quantize(values, held).astype(np.float32))
        self._found: QParams | None = None

    def parameters_learnt(self) -> list[nn.Parameter]:
        return [self.offset, *([self.alpha] if self.clips else []), *([self.beta] if self._has_low else [])]

    @property
    def _has_low(self) -> bool:
        return self.clips and not self.spec.symmetric

    @torch.no_grad()
    def limit(self) -> None:
        """Bring what a step has moved back to where it may be."""
        self.offset.clamp_(-HALF, HALF)
        for end in (self.alpha, self.beta):
            end.clamp_(LEAST, 1.0)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return self._written().to(x.dtype)
        scale, zero = self._grid()
        return self._layout.join((self._steps(scale, zero) - zero) * scale).to(x.dtype)

    def _grid(self) -> tuple[Tensor, Tensor]:
        """Scale and zero point, which is whole; the present ones where the range is not learnt."""
        if not self.clips:
            return self.scale, self.zero_point
        if self.spec.symmetric:
            return self.alpha * self.high, self.zero_point
        high, low = self.alpha * self.high, self.beta * self.low
        qmin, qmax = float(self.spec.qmin), float(self.spec.qmax)
        scale = ((high - low) / (qmax - qmin)).clamp(min=torch.finfo(torch.float32).tiny)
        return scale, _whole(qmin - low / scale).clamp(qmin, qmax)

    def _steps(self, scale: Tensor, zero: Tensor) -> Tensor:
        return (_whole(self.exact / scale + self.offset) + zero).clamp(float(self.spec.qmin), float(self.spec.qmax))

    @torch.no_grad()
    def keep(self) -> None:
        """From now on eval mode gives what is learnt at this moment."""
        scale, zero = self._grid()
        self._numbers = self._layout.join(self._steps(scale, zero)).clone()
        shape = self.held.scale.shape
        self._found = QParams(
            self.spec,
            scale.detach().reshape(shape).numpy().copy(),
            zero.detach().reshape(shape).numpy().astype(self.held.zero_point.dtype),
        )

    def kept(self) -> tuple[Tensor, QParams | None]:
        """What eval mode gives, for `restore`."""
        return self._numbers, self._found

    def restore(self, kept: tuple[Tensor, QParams | None]) -> None:
        self._numbers, self._found = kept

    def qparams(self) -> QParams:
        """Scale and zero point of what was kept."""
        return self.held if self._found is None else self._found

    def numbers(self) -> np.ndarray:
        """The integers of the format that were kept."""
        return self._numbers.numpy().astype(storage_dtype(self.spec))

    def _written(self) -> Tensor:
        found = self.qparams()
        scale, zero = (torch.from_numpy(np.array(part, np.float32)) for part in (found.scale, found.zero_point))
        split = self._layout.split(self._numbers)
        return self._layout.join((split - self._layout.spread(zero)) * self._layout.spread(scale))


def _part(present: Tensor, full: Tensor) -> Tensor:
    """How much of a range is covered; all of it where there is none."""
    return torch.where(full == 0, torch.ones_like(full), present / full).clamp(LEAST, 1.0)


def _whole(values: Tensor) -> Tensor:
    """Rounded; gradients go straight through."""
    return values + (values.round() - values).detach()
