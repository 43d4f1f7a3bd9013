"""What roundings with an offset are, and how a step of signs changes them: in C where that was built, else in torch.

    q         = clip(round(w / s + v) + z, qmin, qmax)        value = (q - z) s
    d / d v   = s                       inside the range, 0 where q saturates
    d / d s   = q - z - w / s           inside, q - z where it saturates
    d / d z   = 0                       inside, -s where it saturates

Rounding passes gradients through. Values are split and scales are spread (`Layout`). Autograd would take ten passes
over memory for each of the two; here it is one, and a step of a block waits for its products.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
import torch
from torch import Tensor

from onnxq.types.spec import QuantSpec

try:
    import onnxq.torchnet.fake_quantize._gradients as gradients
except ImportError:
    gradients = None

HALF = 0.5
"""An offset is at most half a step, so that a weight becomes one of its two neighbours."""


@dataclass(frozen=True)
class Offsets:
    """The weights `exact` with the offset of each, and the ends of their format."""

    exact: Tensor
    offset: Tensor
    spec: QuantSpec

    @property
    def ends(self) -> tuple[float, float]:
        return float(self.spec.qmin), float(self.spec.qmax)

    def steps(self, scale: Tensor, zero: Tensor) -> Tensor:
        """q of every weight."""
        return ((self.exact / scale + self.offset).round() + zero).clamp(*self.ends)

    def values(self, scale: Tensor, zero: Tensor) -> Tensor:
        cells = self._cells(scale)
        if cells is None:
            return (self.steps(scale, zero) - zero) * scale
        out = torch.empty_like(self.exact)
        arrays = (self.exact, self.offset, *_whole(scale, zero), out)
        gradients.offset(*(_flat(array) for array in arrays), *cells, *self.ends)
        return out

    def descend(self, gradient: Tensor, scale: Tensor, zero: Tensor, rate: float) -> tuple[Tensor, Tensor]:
        """Move every offset by `rate` against the sign of its gradient; the gradients of scale and zero point."""
        cells = self._cells(scale)
        if cells is None:
            return self._descend_in_torch(gradient, scale, zero, rate)
        to_scale, to_zero = torch.zeros(scale.shape), torch.zeros(scale.shape)
        arrays = (self.exact, self.offset, gradient.contiguous(), *_whole(scale, zero), to_scale, to_zero)
        gradients.descend(*(_flat(array) for array in arrays), *cells, *self.ends, rate)
        return to_scale, to_zero

    def _descend_in_torch(self, gradient: Tensor, scale: Tensor, zero: Tensor, rate: float) -> tuple[Tensor, Tensor]:
        place = self.exact / scale
        free = (place + self.offset).round() + zero
        steps = free.clamp(*self.ends)
        inside = steps == free
        down = gradient * scale
        to_scale = gradient * (steps - zero - place * inside)
        to_zero = -down * ~inside
        self.offset.sub_((down * inside).sign(), alpha=rate).clamp_(-HALF, HALF)
        return to_scale.sum_to_size(scale.shape), to_zero.sum_to_size(scale.shape)

    def _cells(self, scale: Tensor) -> tuple[int, int, int] | None:
        """Cells behind each other, values of one, and values side by side; None where C cannot do it."""
        shape, cells = tuple(self.exact.shape), tuple(scale.shape) or (1,) * self.exact.ndim
        if gradients is None or not self.exact.is_contiguous():
            return None
        shared = [axis for axis, (length, own) in enumerate(zip(shape, cells, strict=True)) if own != length]
        if not shared:
            return prod(shape), 1, 1
        first, end = shared[0], shared[-1] + 1
        if any(own != 1 for own in cells[first:end]):
            return None
        return prod(shape[:first]), prod(shape[first:end]), prod(shape[end:])


def _whole(scale: Tensor, zero: Tensor) -> tuple[Tensor, Tensor]:
    return scale.contiguous(), zero.expand_as(scale).contiguous()


def _flat(values: Tensor) -> np.ndarray:
    return np.asarray(values.detach().view(-1).numpy())
