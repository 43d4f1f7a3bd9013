"""Adam (Kingma and Ba 2015), as torch has it.

    m = 0.9 m + 0.1 g          v = 0.999 v + 0.001 g^2
    p = p - lr * m' / (sqrt(v') + 1e-8)         m' = m / (1 - 0.9^t), v' = v / (1 - 0.999^t)

torch.optim loads torch's compiler at its first step, which takes longer than fitting a small model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_FIRST, _SECOND, _TINY = 0.9, 0.999, 1e-8


@dataclass(frozen=True)
class Learnt:
    """A parameter with its learning rate; `falls` lets the rate fall to 0 along a cosine."""

    parameter: Tensor
    rate: float
    falls: bool


class Adam:
    """Changes parameters by their gradients."""

    def __init__(self, learnt: Sequence[Learnt]) -> None:
        self._learnt = list(learnt)
        self._mean = [torch.zeros_like(item.parameter) for item in learnt]
        self._square = [torch.zeros_like(item.parameter) for item in learnt]
        self._steps = 0

    def clear(self) -> None:
        for item in self._learnt:
            item.parameter.grad = None

    @torch.no_grad()
    def step(self, done: float) -> None:
        """One step; `done` is the part of all steps that came before it. Parameters without a gradient stay."""
        self._steps += 1
        cosine = 0.5 * (1 + math.cos(math.pi * done))
        first, second = 1 - _FIRST**self._steps, math.sqrt(1 - _SECOND**self._steps)
        for item, mean, square in zip(self._learnt, self._mean, self._square, strict=True):
            gradient = item.parameter.grad
            if gradient is not None:
                mean.lerp_(gradient, 1 - _FIRST)
                square.mul_(_SECOND).addcmul_(gradient, gradient, value=1 - _SECOND)
                rate = item.rate * cosine if item.falls else item.rate
                item.parameter.addcdiv_(mean, (square.sqrt() / second).add_(_TINY), value=-rate / first)
