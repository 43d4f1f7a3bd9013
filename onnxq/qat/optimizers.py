"""Which parameter is trained how fast: weights, biases and norms, and what fake-quantizers learn, are groups apart."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from onnxq.qat.net import QatNet
from onnxq.qat.settings import TrainSettings

WEIGHTS, PLAIN, SCALES = "weights", "biases and norms", "fake-quantizers"


def parameter_groups(net: QatNet, settings: TrainSettings) -> list[dict[str, Any]]:
    """Groups for an optimizer of torch; groups without a parameter are left out.

    Decay pulls values towards 0, which is a prior for weights and a mistake for scales, biases and norms.
    """
    learnt = {
        id(parameter) for fake_quantizer in net.fake_quantizers.values() for parameter in fake_quantizer.parameters()
    }
    groups: dict[str, list[nn.Parameter]] = {WEIGHTS: [], PLAIN: [], SCALES: []}
    for parameter in net.parameters():
        if not parameter.requires_grad:
            continue
        group = SCALES if id(parameter) in learnt else WEIGHTS if parameter.ndim > 1 else PLAIN
        groups[group].append(parameter)
    rates = {WEIGHTS: settings.lr, PLAIN: settings.lr, SCALES: settings.scale_rate}
    return [
        {
            "params": parameters,
            "name": name,
            "lr": rates[name],
            "weight_decay": settings.weight_decay if name == WEIGHTS else 0.0,
        }
        for name, parameters in groups.items()
        if parameters
    ]


def make_optimizer(net: QatNet, settings: TrainSettings) -> torch.optim.Optimizer:
    groups = parameter_groups(net, settings)
    if settings.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=settings.lr, momentum=settings.momentum)
    kind = torch.optim.AdamW if settings.optimizer == "adamw" else torch.optim.Adam
    return kind(groups, lr=settings.lr)


def set_learning_rates(optimizer: torch.optim.Optimizer, settings: TrainSettings, factor: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = factor * (settings.scale_rate if group["name"] == SCALES else settings.lr)
