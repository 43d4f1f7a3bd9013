"""Values chosen by chance, cheaply: one random byte each, where a random float takes three times as long."""

from __future__ import annotations

import torch
from torch import Tensor

LEVELS = 256
"""A probability is rounded to one of these many."""


def by_chance(like: Tensor, probability: float) -> Tensor:
    """True with the probability (in steps of 1 / 256) for each value, of the shape and on the device of `like`."""
    below = round(probability * LEVELS)
    if below >= LEVELS:  # which no byte can be compared with
        return torch.ones_like(like, dtype=torch.bool)
    count = like.numel()
    words = torch.empty(-(-count // 8), dtype=torch.int64, device=like.device).random_(-(2**63), 2**63 - 1)
    return words.view(torch.uint8)[:count].view(like.shape) < below
