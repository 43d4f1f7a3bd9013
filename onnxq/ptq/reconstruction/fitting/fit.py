"""Fitting one block: its outputs to those of the float model, with Adam.

    loss = mean over outputs of  |float - quantized|^2 / |float|^2     noise over signal

    step = loss / loss at the start + WEIGHT / N * sum of 1 - |2 h - 1|^beta       N roundings

The second term makes roundings decide (AdaRound). It is left out for the first WARM_UP of the steps; then beta falls
from BETA_FIRST, which moves only those that have nearly decided, to BETA_LAST. Dividing by the loss at the start makes
one WEIGHT fit all networks. It is large, so that roundings have decided at the end: what is left between two numbers
then falls to one of them by chance, and costs more than all that was learnt. Scales have a learning rate that falls to
0 along a cosine, so that they rest when roundings are decided.

With soft roundings a block is better than it can become with hard ones. So a block is given up (LOOKS) where that, on
the samples that decide, is no better than what the block has now: with 8 bits for weights and activations this is what
becomes of most blocks, and the steps of the second term are four fifths of all.

The chance by which values stay float (QDrop) falls to 0 on the way; in the paper it does not. A few hundred steps are
not the 20,000 of the paper: with a chance of 0.5 to the end, blocks are fitted to a net that is not the written one.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from onnxq.ptq.reconstruction.fitting.adam import Adam, Learnt
from onnxq.ptq.reconstruction.fitting.batches import VALUES, Batch, FitData
from onnxq.ptq.reconstruction.fitting.segment_net import FitNet
from onnxq.ptq.reconstruction.recipe import Recipe
from onnxq.torchnet.chance import by_chance
from onnxq.torchnet.fake_quantize import FakeQuantize
from onnxq.torchnet.values import Value

WARM_UP = 0.2
BETA_FIRST, BETA_LAST = 10.0, 1.5
WEIGHT = 50.0
LOOKS = ((0.1, 0.95), (WARM_UP, 0.95))
"""After which part of the steps a block is looked at, and what its loss with soft roundings is at most, as a part of
that at the start, if it is to go on. When roundings decide, a block loses some hundredths of its noise again, so that
less than 5 % are not worth waiting for. The float weights say nothing: roundings make up for the noise of inputs."""
MOST_LEFT_OUT = 2
"""Of this many steps at least one is done: roundings need some to get from one side to the other."""
REPORTS = 20
"""How often a block reports its progress."""


def loss_of(net: FitNet, samples: FitData, *, soft: bool = False) -> float:
    """Noise over signal on the samples that decide; infinite where an output is not a number.

    In eval mode, or with `soft` roundings and nothing dropped.
    """
    net.drop(0.0)
    net.train(soft)
    noise: dict[int, float] = {}
    signal: dict[int, float] = {}
    with torch.no_grad():
        for numbers in samples.groups(samples.held):
            batch = samples.batch(numbers, float_inputs=False)
            for port, (made, target) in enumerate(zip(net(batch.quantized), batch.targets, strict=True)):
                if target is not None:
                    noise[port] = noise.get(port, 0.0) + float((made.double() - target.double()).square().sum())
                    signal[port] = signal.get(port, 0.0) + float(target.double().square().sum())
    ratios = [noise[port] / signal[port] for port in noise if not signal[port] <= 0]
    found = sum(ratios) / len(ratios) if ratios else 0.0
    return found if math.isfinite(found) else math.inf


def fit(net: FitNet, samples: FitData, recipe: Recipe, start: float, seed: int, report: Callable[[int], None]) -> bool:
    """Change what `net` learns; the caller sets torch's generator, `seed` chooses the samples of each step.

    Returns whether that was done to the end: False for a block that promised nothing, whose net is of no use then.
    """
    optimizer = Adam(_learnt(net, recipe))
    chosen = np.random.default_rng(seed)
    count = samples.per_step(recipe.batch)
    powers = powers_of(samples)
    roundings = list(net.roundings.values())
    size = sum(module.alpha.numel() for module in roundings)
    iterations = _steps(recipe.iterations, samples.size(count))
    looks = {round(part * iterations): most for part, most in LOOKS} if roundings else {}
    for step in range(iterations):
        if step in looks and not loss_of(net, samples, soft=True) < looks[step] * start:
            return False
        net.train(True)
        done = step / iterations
        drop = recipe.drop * (1 - done)
        net.drop(drop)
        optimizer.clear()
        numbers = [samples.fitted[i] for i in chosen.choice(len(samples.fitted), count, replace=False)]
        groups = samples.groups(numbers, count)
        for part in groups:
            batch = samples.batch(part, float_inputs=recipe.drop > 0)
            made = net(_inputs(batch, drop))
            gradients(noise_of(made, batch, powers) / (max(start, 1e-12) * len(groups)))
        if roundings and done >= WARM_UP:
            left = (1 - done) / (1 - WARM_UP)
            beta = BETA_LAST + (BETA_FIRST - BETA_LAST) * left
            for module in roundings:
                module.regularize(beta, WEIGHT / size)
        optimizer.step(done)
        if (step + 1) % max(1, iterations // REPORTS) == 0:
            report((step + 1) * recipe.iterations // iterations)
    net.train(False)
    net.settle()
    return True


def _steps(wanted: int, size: int) -> int:
    """Fewer steps where one has more numbers than it should: large images, which say more, layers of many inputs."""
    return max(-(-wanted // MOST_LEFT_OUT), min(wanted, wanted * VALUES // max(1, size)))


def _learnt(net: FitNet, recipe: Recipe) -> list[Learnt]:
    """Parameters with their learning rates, those of scales and weights in their own units."""
    return [
        *(Learnt(module.alpha, recipe.lr, False) for module in net.roundings.values()),
        *(Learnt(module.scale, recipe.scale_lr * _unit(module), True) for module in net.scales.values()),
        *(Learnt(value, recipe.lr * net.unit_of(name), True) for name, value in net.values.items()),
    ]


def _unit(module: FakeQuantize) -> float:
    """What the change of a scale is counted in: itself; less where more numbers depend on it than 4 bits have."""
    levels = module.spec.qmax - module.spec.qmin + 1
    return float(module.scale.detach().abs().mean()) * min(1.0, math.sqrt(16 / levels))


def gradients(loss: Tensor) -> None:
    """Add the gradients of a loss to those of what is learnt."""
    loss.backward()  # type: ignore[no-untyped-call]


def _inputs(batch: Batch, drop: float) -> list[Value]:
    """What the quantized model gives, mixed with what the float model gives by the chance `drop` (QDrop)."""
    if not drop:
        return batch.quantized
    return [
        torch.where(by_chance(mine, drop), exact, mine) if _mixes(mine, exact) else mine
        for mine, exact in zip(batch.quantized, batch.float, strict=True)
    ]


def _mixes(mine: Value, exact: Value) -> bool:
    return isinstance(mine, Tensor) and mine.is_floating_point() and mine.shape == exact.shape and mine is not exact


def powers_of(samples: FitData) -> list[float]:
    """The mean square of each target over all samples that are fitted to."""
    sums: list[float] = []
    for numbers in samples.groups(samples.fitted):
        targets = samples.batch(numbers, float_inputs=False).targets
        sums = sums or [0.0] * len(targets)
        for port, target in enumerate(targets):
            if target is not None:
                sums[port] += float(target.double().square().mean()) * len(numbers)
    return [total / len(samples.fitted) for total in sums]


def noise_of(made: list[Value], batch: Batch, powers: list[float]) -> Tensor:
    """Noise over signal of what a net makes of a batch."""
    parts = [
        (result.float() - target.float()).square().mean() / power
        for result, target, power in zip(made, batch.targets, powers, strict=True)
        if target is not None and power > 0
    ]
    return torch.stack(parts).mean() if parts else torch.zeros((), requires_grad=True)
