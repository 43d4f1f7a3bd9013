"""The roundings of `onnxq.numerics.rounding` for torch tensors, bit for bit."""

from __future__ import annotations

import torch
from torch import Tensor

from onnxq.types.spec import Rounding


def round_in_place(x: Tensor, rounding: Rounding) -> Tensor:
    """Each value rounded to an integer, in the memory of `x` or in new memory; a zero may get another sign.

    The values are within the range of an integer format, or NaN, which stays.
    """
    if rounding == "half_even":
        return x.round_()
    if rounding == "floor":
        return x.floor_()
    if rounding == "half_up":
        return _half_up(x)
    magnitude = x.abs()
    rounded = _half_up(magnitude if rounding == "half_away" else magnitude.neg_())
    return rounded.copysign_(x)


def _half_up(x: Tensor) -> Tensor:
    """floor((floor(2 x) + 1) / 2), which is floor(x + 1/2) without a sum that is rounded: every step is exact."""
    doubled = x.mul_(2).floor_()
    return torch.add(x.new_full((), 0.5), doubled, alpha=0.5, out=doubled).floor_()
