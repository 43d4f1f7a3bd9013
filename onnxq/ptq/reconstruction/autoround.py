"""AutoRound, "Optimize Weight Rounding via Signed Gradient Descent for the Quantization of LLMs" (Cheng et al. 2023).

    min over V, alpha, beta of  |block(x) - block~(x~; V, alpha, beta)|^2
    q = clip(round(w / s + V) + z, low, high)       s, z of the range [beta * least, alpha * largest]

V is within half a step, so that each weight becomes one of its two neighbours; alpha and beta, which clip the range of
each scale, are at most 1. All of them move by the sign of their gradient, with a rate that falls from 1 / iterations
to 0 in a line. The best state on the samples that decide is kept. alpha and beta start where the scales are that
calibration or a search has left, not at 1.
"""

from __future__ import annotations

from typing import Any

from onnxq.ptq.method import Arguments, Improved, State, Task, improvement
from onnxq.ptq.reconstruction.recipe import Recipe


def recipe(settings: Arguments) -> Recipe:
    return Recipe.of("autoround", settings, learnt="clipped", scales=False, lr=0.0)


@improvement(
    "autoround",
    "rounds weights and clips the ranges of their scales by the signs of gradients, block by block",
    "Optimize Weight Rounding via Signed Gradient Descent for the Quantization of LLMs, Cheng et al. 2023",
    {"iterations": 200, "batch": 8, "block": "auto", "samples": 128},
    needs_torch=True,
    rounds=True,
    check=recipe,
)
def autoround(state: State, task: Task, **settings: Any) -> Improved:
    """Learn roundings and ranges of weights, block by block."""
    from onnxq.ptq.reconstruction.fitting.run import reconstruct

    return reconstruct(state, task, recipe(settings))
