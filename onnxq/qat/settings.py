"""What training is asked to do: every number of `onnxq qat` in one value that is checked when it is made."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from onnxq.errors import ConfigError, did_you_mean

OPTIMIZERS = ("adam", "adamw", "sgd")
SCHEDULES = ("cosine", "step", "constant")
LABEL_LOSSES = ("auto", "cross_entropy", "mse", "bce")
DISTILL_LOSSES = ("auto", "kl", "mse")
BEST = ("max", "min")

WITHOUT_EFFECT_ON_THE_RESULT = ("checkpoint_every",)
"""Settings that may differ between a run and the one that goes on with it."""


@dataclass(frozen=True)
class TrainSettings:
    """How a network is trained.

    Moments (`observer_freeze`, `batch_norm_freeze`, `quantize_from`, `warmup`) below 1 are a fraction of all steps, and
    from 1 on a number of epochs. None means never.

    epochs, steps      how long: whole passes over the data, and an upper limit of optimizer steps
    batch_size         samples of one step, over all processes and slices; a data loader brings its own
    accumulate         slices that each process cuts its part of a batch into, to save memory
    lr, scale_lr       learning rates of the network and of the fake-quantizers; scale_lr is lr / 10 when left out.
                       Limits (pact) have 10 times that, thresholds (tqt) and zero points 100 times,
                       roundings (adaround) 1000 times
    weight_decay       of weights with two or more axes; biases, norms and fake-quantizers have none
    schedule           cosine to 0, step (times gamma every step_size epochs) or constant, after a linear warm-up
    clip_gradient      largest norm of all gradients together
    observer_freeze    when observers stop to follow the values
    batch_norm_freeze  when statistics of batch normalization stop to follow the batches
    quantize_from      when fake-quantization begins; before, the network is trained in float. None is for a comparison:
                       how far the same training brings the float network
    distill            share of the loss that compares with the float network, 0 .. 1; when left out it is 0 with
                       labels and 1 without
    distill_loss       kl (classes, with temperature), mse (relative to the size of the output), or auto
    label_loss         cross_entropy, mse, bce, auto, or module:function(outputs, labels)
    label_output       the output that labels are for; the first when left out
    recompute          segments of gradient checkpointing: memory for time; 0 keeps every activation
    evaluate_every     epochs between evaluations
    best_by            max or min: which end of the metric is the good one; when left out the metric knows
    patience           evaluations without a better metric after which training ends early
    checkpoint_every   steps between checkpoints within an epoch; there is one at the end of each epoch anyway
    """

    epochs: int = 10
    steps: int | None = None
    batch_size: int = 32
    accumulate: int = 1
    lr: float = 1e-3
    scale_lr: float | None = None
    optimizer: str = "adam"
    momentum: float = 0.9
    weight_decay: float = 0.0
    schedule: str = "cosine"
    warmup: float = 0.0
    step_size: float = 5.0
    gamma: float = 0.1
    clip_gradient: float | None = None
    observer_freeze: float | None = 0.0
    batch_norm_freeze: float | None = 0.5
    quantize_from: float | None = 0.0
    distill: float | None = None
    distill_loss: str = "auto"
    temperature: float = 1.0
    label_loss: str = "auto"
    label_output: str | None = None
    recompute: int = 0
    seed: int = 0
    evaluate_every: int = 1
    best_by: str | None = None
    patience: int | None = None
    checkpoint_every: int | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "accumulate", "evaluate_every"):
            _whole(name, getattr(self, name), 1)
        for name in ("steps", "patience", "checkpoint_every"):
            if getattr(self, name) is not None:
                _whole(name, getattr(self, name), 1)
        _whole("recompute", self.recompute, 0)
        _whole("seed", self.seed, 0)
        for name in ("lr", "step_size", "gamma", "temperature"):
            _number(name, getattr(self, name), above=0.0)
        for name in ("scale_lr", "weight_decay", "warmup", "quantize_from", "observer_freeze", "batch_norm_freeze"):
            if getattr(self, name) is not None or name in ("weight_decay", "warmup"):
                _number(name, getattr(self, name), low=0.0)
        if self.clip_gradient is not None:
            _number("clip_gradient", self.clip_gradient, above=0.0)
        _number("momentum", self.momentum, low=0.0, below=1.0)
        if self.distill is not None:
            _number("distill", self.distill, low=0.0, high=1.0)
        _choice("optimizer", self.optimizer, OPTIMIZERS)
        _choice("schedule", self.schedule, SCHEDULES)
        _choice("distill_loss", self.distill_loss, DISTILL_LOSSES)
        if ":" not in self.label_loss:
            _choice("label_loss", self.label_loss, LABEL_LOSSES, "module:function")
        if self.best_by is not None:
            _choice("best_by", self.best_by, BEST)

    @property
    def scale_rate(self) -> float:
        """The learning rate of what fake-quantizers learn.

        A scale is far smaller than a weight's usual distance from 0, and Adam moves every parameter by about the
        learning rate whatever its size.
        """
        return self.lr / 10 if self.scale_lr is None else self.scale_lr

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def train_settings(given: TrainSettings | Mapping[str, Any] | None) -> TrainSettings:
    """Settings from what a caller has: the value itself, a mapping with some of its keys, or nothing."""
    if isinstance(given, TrainSettings):
        return given
    known = [field.name for field in fields(TrainSettings)]
    for key in given or {}:
        if key not in known:
            raise ConfigError(f"'{key}' is no setting of training.{did_you_mean(key, known)} Known: {', '.join(known)}")
    return TrainSettings(**(given or {}))


def _whole(name: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"{name} is a whole number from {least} on, got {value!r}")


def _number(
    name: str,
    value: Any,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    above: float = -math.inf,
    below: float = math.inf,
) -> None:
    fits = (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and low <= value <= high
        and above < value < below
    )
    if fits:
        return
    start = f"above {above:g}" if above > -math.inf else f"from {low:g} on"
    end = f", below {below:g}" if below < math.inf else f", at most {high:g}" if high < math.inf else ""
    raise ConfigError(f"{name} is a finite number {start}{end}, got {value!r}")


def _choice(name: str, value: Any, choices: tuple[str, ...], also: str = "") -> None:
    if value in choices:
        return
    known = ", ".join((*choices, also) if also else choices)
    raise ConfigError(f"{name} {value!r} is not known.{did_you_mean(str(value), choices)} Known: {known}")


def idle_settings(settings: TrainSettings, *, batch_norms: str, distills_by_kl: bool) -> list[str]:
    """A line for each setting that somebody has changed and that has no effect beside the others."""
    reasons = {
        "momentum": (settings.optimizer != "sgd", f"the optimizer is {settings.optimizer}"),
        "step_size": (settings.schedule != "step", f"the schedule is {settings.schedule}"),
        "gamma": (settings.schedule != "step", f"the schedule is {settings.schedule}"),
        "batch_norm_freeze": (batch_norms != "live", f"batch norms are {batch_norms}"),
        "temperature": (not distills_by_kl, "nothing is distilled by kl"),
    }
    defaults = {field.name: field.default for field in fields(TrainSettings)}
    return [
        f"{name} = {getattr(settings, name)} has no effect: {why}"
        for name, (idle, why) in reasons.items()
        if idle and getattr(settings, name) != defaults[name]
    ]
