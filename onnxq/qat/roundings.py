"""Roundings that are learnt (adaround): free at first, then every weight has to decide, and the net sees the decision.

The loss gets a part that is large where weights are undecided. It demands more and more: beta goes from 20 to 2, as in
the paper, which optimizes one layer at a time; here all layers are trained together, by the loss of the whole net.
"""

from __future__ import annotations

from typing import Any

import torch

from onnxq.qat.net import QatNet

FREE_UNTIL = 0.3
"""Part of the training in which weights may stay between two numbers."""

FIRST_BETA, LAST_BETA = 20.0, 2.0


def learning_roundings(net: QatNet) -> list[Any]:
    """The fake-quantizers that learn which way each weight is rounded."""
    return [module for module in net.fake_quantizers.values() if hasattr(module, "regularization")]


def let_decide(net: QatNet, progress: float) -> None:
    """Set whether the net computes with soft or with decided roundings; `progress` goes from 0 to 1."""
    for module in learning_roundings(net):
        module.deciding = progress >= FREE_UNTIL


def undecided(net: QatNet, progress: float) -> torch.Tensor | None:
    """How far the weights are from a decision, 0 .. 1; None as long as they are free, and where there are none."""
    learning = learning_roundings(net)
    weights = sum(parameter.numel() for module in learning for parameter in module.parameters())
    if not weights or progress < FREE_UNTIL:
        return None
    beta = FIRST_BETA + (LAST_BETA - FIRST_BETA) * (progress - FREE_UNTIL) / (1 - FREE_UNTIL)
    total: torch.Tensor = sum(module.regularization(beta) for module in learning)
    return total / weights
