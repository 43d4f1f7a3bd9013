"""QDrop, "Randomly Dropping Quantization for Extremely Low-bit Post-Training Quantization" (Wei et al. 2022).

BRECQ, with the quantization of activations left out at random while a block is fitted: each value inside stays float by
the chance `drop`, and each value at the input is that of the float model by the same chance. Roundings that hold
under such changes hold on samples that were not fitted to. The chance falls to 0 while a block is fitted, and what is
chosen at random takes more steps than BRECQ does.
"""

from __future__ import annotations

from typing import Any

from onnxq.ptq.method import Arguments, Improved, State, Task, improvement
from onnxq.ptq.reconstruction.recipe import Recipe


def recipe(settings: Arguments) -> Recipe:
    return Recipe.of("qdrop", settings, learnt="roundings", scales=True)


@improvement(
    "qdrop",
    "as brecq, with activations left float at random while a block is fitted, so that it overfits less",
    "QDrop: Randomly Dropping Quantization for Extremely Low-bit Post-Training Quantization, Wei et al. 2022",
    {"iterations": 200, "batch": 32, "lr": 0.1, "scale_lr": 0.01, "drop": 0.25, "block": "auto", "samples": 1024},
    needs_torch=True,
    rounds=True,
    check=recipe,
)
def qdrop(state: State, task: Task, **settings: Any) -> Improved:
    """Learn roundings and scales of activations, block by block, with quantizers dropped at random."""
    from onnxq.ptq.reconstruction.fitting.run import reconstruct

    return reconstruct(state, task, recipe(settings))
