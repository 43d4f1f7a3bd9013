"""AdaRound, "Up or Down? Adaptive Rounding for Post-Training Quantization" (Nagel et al. 2020), layer by layer.

    min over V of  |f(W x) - f(W~ x~)|^2 + regularization(V)        W~ = scale * (floor(W / scale) + h(V))

x is what the float model gives a layer, x~ what the quantized model gives it with all layers before rounded already, f
the activation function behind the layer. Scales stay as calibration found them.
"""

from __future__ import annotations

from typing import Any

from onnxq.ptq.method import Arguments, Improved, State, Task, improvement
from onnxq.ptq.reconstruction.recipe import Recipe


def recipe(settings: Arguments) -> Recipe:
    return Recipe.of("adaround", settings, learnt="roundings", scales=False)


@improvement(
    "adaround",
    "rounds each weight up or down so that its layer computes what it did in float",
    "Up or Down? Adaptive Rounding for Post-Training Quantization, Nagel et al. 2020",
    {"iterations": 150, "batch": 32, "lr": 0.15, "block": "layer", "samples": 1024},
    needs_torch=True,
    rounds=True,
    check=recipe,
)
def adaround(state: State, task: Task, **settings: Any) -> Improved:
    """Learn the rounding of every weight, layer by layer."""
    from onnxq.ptq.reconstruction.fitting.run import reconstruct

    return reconstruct(state, task, recipe(settings))
