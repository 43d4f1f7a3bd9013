"""Fitting one block by the signs of gradients, as AutoRound does: the best state on the samples that decide is kept."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnxq.ptq.reconstruction.fitting.batches import FitData
from onnxq.ptq.reconstruction.fitting.fit import gradients, loss_of, noise_of, powers_of
from onnxq.ptq.reconstruction.fitting.segment_net import FitNet
from onnxq.ptq.reconstruction.recipe import Recipe

LOOKS = 10
"""How often the samples that decide are looked at."""


def descend(
    net: FitNet, samples: FitData, recipe: Recipe, start: float, seed: int, report: Callable[[int], None]
) -> bool:
    """Change what `net` learns; every parameter moves by the rate of the step, against the sign of its gradient."""
    chosen = np.random.default_rng(seed)
    count, powers = samples.per_step(recipe.batch), powers_of(samples)
    modules = list(net.clipped.values())
    best = start
    for step in range(recipe.iterations):
        net.train(True)
        for module in modules:
            module.begin()
        numbers = [samples.fitted[i] for i in chosen.choice(len(samples.fitted), count, replace=False)]
        for part in samples.groups(numbers, count):
            batch = samples.batch(part, float_inputs=False)
            gradients(noise_of(net(batch.quantized), batch, powers))
        rate = (1 - step / recipe.iterations) / recipe.iterations
        for module in modules:
            module.descend(rate)
        if (step + 1) % max(1, recipe.iterations // LOOKS) == 0 or step + 1 == recipe.iterations:
            best = _kept_if_better(net, samples, best)
            report(step + 1)
    net.train(False)
    return True


def _kept_if_better(net: FitNet, samples: FitData, best: float) -> float:
    """Let the net write what it has learnt, unless it wrote something better before."""
    before = {name: module.kept() for name, module in net.clipped.items()}
    for module in net.clipped.values():
        module.keep()
    found = loss_of(net, samples)
    if found < best:
        return found
    for name, module in net.clipped.items():
        module.restore(before[name])
    return best
