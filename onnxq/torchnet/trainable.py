"""Which constants of a graph are trained.

Floating-point constants that operators compute with are, if they have more than one value. Settings of operators (the
limits of a Clip) are not, nor single numbers (the 0.5 of a GELU, the epsilon of a norm), nor masks (constants with
infinities or values beyond 1e4), nor the statistics of batch norms.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

import torch
from torch import Tensor

MASK = 1e4
"""Constants with values beyond this are masks: they are added to what must not be seen."""

Trainable = Sequence[str] | None


def is_trainable(wanted: Trainable, name: str, value: Tensor) -> bool:
    """Whether a constant that an operator computes with is a parameter; `wanted` are patterns of names, or None."""
    if not value.is_floating_point() or value.dtype.itemsize < 2:
        return False
    if wanted is not None:
        return any(name == pattern or fnmatch.fnmatchcase(name, pattern) for pattern in wanted)
    return value.numel() > 1 and not looks_like_mask(value)


def looks_like_mask(value: Tensor) -> bool:
    """Whether a floating-point constant has infinities, NaN or values beyond `MASK`."""
    if not value.is_floating_point() or not value.numel():
        return False
    largest = value.abs().max()
    return not bool(torch.isfinite(largest) and largest < MASK)
