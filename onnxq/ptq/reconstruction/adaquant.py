"""AdaQuant, "Improving Post Training Neural Quantization" (Hubara et al. 2020): fast finetuning, layer by layer.

    min over W, b, scales of  |f(W x + b) - f(Q(W) Q(x~) + b)|^2

Weights move freely, not only to the next number. Their gradients and those of scales (LSQ, Esser et al. 2020) go
straight through the rounding. It learns more numbers than AdaRound from the same samples, and needs more of them.

    epochs=n    passes over the samples, in the place of `iterations`
"""

from __future__ import annotations

import math
from typing import Any

from onnxq.errors import ConfigError
from onnxq.ptq.method import Arguments, Improved, State, Task, improvement
from onnxq.ptq.reconstruction.recipe import Recipe


def recipe(settings: Arguments, samples: int | None = None) -> Recipe:
    """The settings of a run on so many samples; without that number those that `epochs` has no say in."""
    own = {key: value for key, value in settings.items() if key != "epochs"}
    epochs = int(settings["epochs"])
    if epochs < 0:
        raise ConfigError(f"improvement 'adaquant': epochs must be at least 0, got {epochs}")
    if epochs and samples is not None:
        own["iterations"] = epochs * math.ceil(min(samples, int(own["samples"])) / int(own["batch"]))
    return Recipe.of("adaquant", own, learnt="weights", scales=True)


@improvement(
    "adaquant",
    "fits weights, biases and scales of each layer to what the layer computed in float",
    "Improving Post Training Neural Quantization: Layer-wise Calibration and Integer Programming, Hubara et al. 2020",
    {"iterations": 150, "batch": 32, "lr": 0.01, "scale_lr": 5e-3, "block": "layer", "samples": 1024, "epochs": 0},
    needs_torch=True,
    rounds=True,
    check=recipe,
)
def adaquant(state: State, task: Task, **settings: Any) -> Improved:
    """Learn weights, biases and scales, layer by layer."""
    from onnxq.ptq.reconstruction.fitting.run import reconstruct

    return reconstruct(state, task, recipe(settings, len(task.samples)))
