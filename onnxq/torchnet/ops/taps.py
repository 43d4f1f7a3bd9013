"""Values between the pixels of an image of any number of axes, as sums over the pixels around: linear, cubic, nearest.

An axis gives its taps: pairs of (index, weight), each a tensor [N, points]. The value at a point is the sum over all
combinations of the axes' taps. Indices outside the image read 0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Tap = tuple[Tensor, Tensor]

CUBIC_A = -0.75
"""The coefficient of Keys' cubic convolution that torch and ONNX take."""


def nearest_taps(position: Tensor) -> list[Tap]:
    """The pixel that is nearest, the even one of two."""
    return [(torch.round(position).long(), torch.ones_like(position))]


def linear_taps(position: Tensor) -> list[Tap]:
    low = torch.floor(position)
    share = position - low
    return [(low.long(), 1 - share), (low.long() + 1, share)]


def cubic_taps(position: Tensor) -> list[Tap]:
    low = torch.floor(position)
    share = position - low
    return [(low.long() + step, keys(share - step)) for step in (-1, 0, 1, 2)]


def keys(distance: Tensor, a: float = CUBIC_A) -> Tensor:
    """Keys' cubic kernel (1981) at a distance."""
    x = distance.abs()
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return torch.where(x <= 1, near, torch.where(x < 2, far, torch.zeros_like(x)))


def sample(
    x: Tensor, taps: Sequence[Sequence[Tap]], moved: Callable[[Tensor, int], Tensor] = lambda index, axis: index
) -> Tensor:
    """Values [N, C, points] of x [N, C, sizes...]; `moved` may send indices (of an axis) back into the image."""
    sizes = x.shape[2:]
    flat = x.flatten(2)
    total: Tensor | None = None
    for combination in itertools.product(*taps):
        indices = [moved(index, axis) for axis, (index, _) in enumerate(combination)]
        value = _values_at(flat, indices, sizes)
        weight = combination[0][1]
        for _, factor in combination[1:]:
            weight = weight * factor
        part = value * weight.unsqueeze(1)
        total = part if total is None else total + part
    assert total is not None  # every axis has at least one tap
    return total


def _values_at(flat: Tensor, indices: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    inside = torch.ones_like(indices[0], dtype=torch.bool)
    place = torch.zeros_like(indices[0])
    for axis, (index, size) in enumerate(zip(indices, sizes, strict=True)):
        inside = inside & (index >= 0) & (index < size)
        place = place + index.clamp(0, size - 1) * math.prod(sizes[axis + 1 :])
    found = flat.gather(2, place.unsqueeze(1).expand(-1, flat.shape[1], -1))
    return torch.where(inside.unsqueeze(1), found, torch.zeros_like(found))
