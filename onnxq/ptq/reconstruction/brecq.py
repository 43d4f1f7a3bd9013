"""BRECQ, "Pushing the Limit of Post-Training Quantization by Block Reconstruction" (Li et al. 2021).

Roundings as in AdaRound, but of a whole block at once: what its layers do wrong may cancel out at its end. Blocks are
found in the graph (`onnxq.ptq.reconstruction.blocks`). The scales of the activations inside are learnt with them (LSQ,
Esser et al. 2020):

    min over V, scales of  |block(x) - block~(x~; V, scales)|^2 + regularization(V)

The loss is the plain squared error of the block's outputs, without the paper's Fisher weights, which need labels or
gradients of the whole model.
"""

from __future__ import annotations

from typing import Any

from onnxq.ptq.method import Arguments, Improved, State, Task, improvement
from onnxq.ptq.reconstruction.recipe import Recipe


def recipe(settings: Arguments) -> Recipe:
    return Recipe.of("brecq", settings, learnt="roundings", scales=True)


@improvement(
    "brecq",
    "rounds weights and fits scales so that each block computes what it did in float",
    "BRECQ: Pushing the Limit of Post-Training Quantization by Block Reconstruction, Li et al. 2021",
    {"iterations": 150, "batch": 32, "lr": 0.1, "scale_lr": 0.01, "block": "auto", "samples": 1024},
    needs_torch=True,
    rounds=True,
    check=recipe,
)
def brecq(state: State, task: Task, **settings: Any) -> Improved:
    """Learn roundings and scales of activations, block by block."""
    from onnxq.ptq.reconstruction.fitting.run import reconstruct

    return reconstruct(state, task, recipe(settings))
