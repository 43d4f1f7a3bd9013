"""The roundings of `onnxq.numerics.rounding` for torch tensors, bit for bit."""

from __future__ import annotations

from torch import Tensor

from onnxq.types.spec import Rounding


def round_in_place(x: Tensor, rounding: Rounding) -> Tensor:
    """Each finite value rounded to an integer; the memory of `x` may be used for it, and zeros may get another sign.

    x minus its nearest integer is exact, so ties are known exactly, and only they are decided again. NaN stays.
    """
    if rounding == "half_even":
        return x.round_()
    if rounding == "floor":
        return x.floor_()
    if rounding == "half_up":
        nearest = x.round()
        return nearest.add_(x.sub_(nearest) == 0.5)
    magnitude = x.abs()
    nearest = magnitude.round()
    if rounding == "half_away":
        nearest.add_(magnitude.sub_(nearest) == 0.5)
    else:
        nearest.add_(magnitude.sub_(nearest) == -0.5, alpha=-1)
    return nearest.copysign_(x)
