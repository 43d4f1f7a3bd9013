"""The activation functions that RNN, GRU and LSTM may name, with their alpha and beta."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from onnxq.errors import did_you_mean
from onnxq.torchnet.call import Call

Activation = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class _Kind:
    """An activation with the defaults of the parameters that it takes (None: it takes none)."""

    function: Callable[[Tensor, float, float], Tensor]
    alpha: float | None = None
    beta: float | None = None


_KINDS: dict[str, _Kind] = {
    "Relu": _Kind(lambda x, a, b: torch.relu(x)),
    "Tanh": _Kind(lambda x, a, b: torch.tanh(x)),
    "Sigmoid": _Kind(lambda x, a, b: torch.sigmoid(x)),
    "Affine": _Kind(lambda x, a, b: a * x + b, 1.0, 0.0),
    "LeakyRelu": _Kind(lambda x, a, b: functional.leaky_relu(x, a), 0.01),
    "ThresholdedRelu": _Kind(lambda x, a, b: torch.where(x >= a, x, torch.zeros_like(x)), 1.0),
    "ScaledTanh": _Kind(lambda x, a, b: a * torch.tanh(b * x), 1.0, 1.0),
    "HardSigmoid": _Kind(lambda x, a, b: (a * x + b).clamp(0, 1), 0.2, 0.5),
    "Elu": _Kind(lambda x, a, b: functional.elu(x, a), 1.0),
    "Softsign": _Kind(lambda x, a, b: functional.softsign(x)),
    "Softplus": _Kind(lambda x, a, b: functional.softplus(x)),
}
_BY_NAME = {name.lower(): name for name in _KINDS}


def activation_names(call: Call, defaults: list[str]) -> list[str]:
    """The names that a node gives or leaves to the defaults, as ONNX spells them; `defaults` are for all directions."""
    given = call.attribute("activations", None) or defaults
    if len(given) != len(defaults):
        raise call.unsupported(f"{len(given)} activations; {len(defaults)} are needed")
    for name in given:
        if name.lower() not in _BY_NAME:
            raise call.unsupported(f"activation '{name}' is not known.{did_you_mean(name, _KINDS)}")
    return [_BY_NAME[name.lower()] for name in given]


def gate_activations(call: Call, names: list[str]) -> list[Activation]:
    """The functions. alpha and beta are handed out in order to the functions that take one."""
    alphas, betas = list(call.attribute("activation_alpha", ())), list(call.attribute("activation_beta", ()))
    threshold = call.attribute("clip", None)
    found = []
    for name in names:
        kind = _KINDS[name]
        alpha = _next(alphas, kind.alpha)
        beta = _next(betas, kind.beta)
        found.append(_with(kind, alpha, beta, None if threshold is None else float(threshold)))
    return found


def _next(values: list[float], default: float | None) -> float:
    if default is None:
        return 0.0
    return float(values.pop(0)) if values else default


def _with(kind: _Kind, alpha: float, beta: float, threshold: float | None) -> Activation:
    function = kind.function
    if not threshold:  # 0 stands for no clip too
        return lambda x: function(x, alpha, beta)
    limit = threshold
    return lambda x: function(x.clamp(-limit, limit), alpha, beta)
