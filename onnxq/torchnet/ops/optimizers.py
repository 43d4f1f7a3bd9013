"""Steps of optimizers as nodes of a training graph: Momentum, Adagrad, Adam.

Inputs are the learning rate R, the number of the step T, then for n tensors all X, all gradients G, and each state in
turn; outputs all new X, and each new state in turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxq.torchnet.call import Call
from onnxq.torchnet.registry import Kernel, op

DOMAIN = "ai.onnx.preview.training"

Update = Callable[..., tuple[Tensor, ...]]


def _for_each(kinds: int, update: Update) -> Kernel:
    """`update(rate, step, x, gradient, states ...)` for each of the tensors; `kinds` is how many groups there are."""

    def run(rate: Tensor, step: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        count = len(tensors) // kinds
        results = [update(rate, step, *tensors[number::count]) for number in range(count)]
        return tuple(item for group in zip(*results, strict=True) for item in group)

    return run


@op("Momentum", since=1, domain=DOMAIN)
def momentum(call: Call) -> Kernel:
    keep, gain, decay = (call.attribute(name) for name in ("alpha", "beta", "norm_coefficient"))
    nesterov = call.attribute("mode") == "nesterov"

    def update(rate: Tensor, step: Tensor, x: Tensor, gradient: Tensor, velocity: Tensor) -> tuple[Tensor, Tensor]:
        slope = decay * x + gradient
        velocity = keep * velocity + torch.where(step > 0, gain, 1.0).to(x.dtype) * slope
        return x - rate * (slope + keep * velocity if nesterov else velocity), velocity

    return _for_each(3, update)


@op("Adagrad", since=1, domain=DOMAIN)
def adagrad(call: Call) -> Kernel:
    fading = call.attribute("decay_factor", 0.0)
    epsilon = call.attribute("epsilon", 1e-6)
    decay = call.attribute("norm_coefficient", 0.0)

    def update(rate: Tensor, step: Tensor, x: Tensor, gradient: Tensor, squares: Tensor) -> tuple[Tensor, Tensor]:
        slope = decay * x + gradient
        squares = squares + slope * slope
        return x - rate / (1 + step * fading) * slope / (squares.sqrt() + epsilon), squares

    return _for_each(3, update)


@op("Adam", since=1, domain=DOMAIN)
def adam(call: Call) -> Kernel:
    first, second = call.attribute("alpha", 0.9), call.attribute("beta", 0.999)
    epsilon = call.attribute("epsilon", 1e-6)
    decay = call.attribute("norm_coefficient", 0.0)
    shrink = 1 - call.attribute("norm_coefficient_post", 0.0)

    def update(rate: Tensor, step: Tensor, x: Tensor, gradient: Tensor, *state: Tensor) -> tuple[Any, ...]:
        slope = decay * x + gradient
        mean = first * state[0] + (1 - first) * slope
        square = second * state[1] + (1 - second) * slope * slope
        corrected = rate * torch.sqrt(1 - second ** step.to(rate.dtype)) / (1 - first ** step.to(rate.dtype))
        rate = torch.where(step > 0, corrected, rate)
        return shrink * (x - rate * mean / (square.sqrt() + epsilon)), mean, square

    return _for_each(4, update)
