"""Which parameter is trained how fast: weights, biases and norms, and what fake-quantizers learn, are groups apart."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from onnxq.config.training import TrainSettings
from onnxq.errors import ConfigError
from onnxq.qat.net import QatNet

WEIGHTS, PLAIN, LEARNT = "weights", "biases and norms", "fake-quantizers"

ParameterGroup = dict[str, Any]
"""Parameters with the options they are trained with, by the names that torch's optimizers take in a dict."""


def parameter_groups(net: QatNet, settings: TrainSettings) -> list[ParameterGroup]:
    """Groups for an optimizer of torch; groups without a parameter are left out.

    Decay pulls values towards 0, which is a prior for weights and a mistake for scales, biases and norms.
    """
    # Adam moves every parameter by its learning rate, whatever the size of its gradient; plain descent does not.
    relative = settings.optimizer != "sgd"
    lr_multipliers = {
        id(parameter): module.lr_multipliers.get(name, 1.0) if relative else 1.0
        for module in net.fake_quantizers.values()
        for name, parameter in module.named_parameters()
    }
    groups: dict[tuple[str, float], list[nn.Parameter]] = {}
    for parameter in net.parameters():
        if not parameter.requires_grad:
            continue
        speed = lr_multipliers.get(id(parameter))
        own = (WEIGHTS if parameter.ndim > 1 else PLAIN, 1.0)
        groups.setdefault(own if speed is None else (LEARNT, speed), []).append(parameter)
    return [
        {
            "params": parameters,
            "name": name,
            "speed": speed,
            "lr": _rate(name, speed, settings),
            "weight_decay": settings.weight_decay if name == WEIGHTS else 0.0,
        }
        for (name, speed), parameters in groups.items()
    ]


def make_optimizer(net: QatNet, settings: TrainSettings) -> torch.optim.Optimizer:
    groups = parameter_groups(net, settings)
    if not groups:
        raise ConfigError(
            "the network has nothing to train: no constant of it is trainable, and no fake-quantizer learns"
        )
    if settings.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=settings.lr, momentum=settings.momentum)
    kind = torch.optim.AdamW if settings.optimizer == "adamw" else torch.optim.Adam
    return kind(groups, lr=settings.lr)


def set_learning_rates(optimizer: torch.optim.Optimizer, settings: TrainSettings, factor: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = factor * _rate(group["name"], group["speed"], settings)


def _rate(name: str, speed: float, settings: TrainSettings) -> float:
    return speed * settings.scale_rate if name == LEARNT else settings.lr
