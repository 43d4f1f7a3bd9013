"""What training is asked to do: every number of `onnxq qat` in one value that is checked when it is made."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Annotated, Any, get_args, get_type_hints

from onnxq.config.option import Option
from onnxq.errors import ConfigError, did_you_mean

OPTIMIZERS = ("adam", "adamw", "sgd")
SCHEDULES = ("cosine", "step", "constant")
LABEL_LOSSES = ("auto", "cross_entropy", "mse", "bce")
DISTILL_LOSSES = ("auto", "kl", "mse")

WITHOUT_EFFECT_ON_THE_RESULT = ("checkpoint_every",)
"""Settings that may differ between a run and the one that goes on with it."""


Check = Callable[[str, Any], None]


def _option(help: str, metavar: str | None = None, group: str = "training") -> Option:
    return Option(group, help=help, metavar=metavar)


def _moment(help: str) -> Option:
    return Option("training", help=help, kind=str, read=_read_moment)


def _read_moment(option: str, text: str) -> float | None:
    if text == "never":
        return None
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{option} is a fraction of all steps, epochs from 1 on, or never, got '{text}'") from None


def _whole(least: int) -> Check:
    def check(name: str, value: Any) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ConfigError(f"{name} is a whole number from {least} on, got {value!r}")

    return check


def _number(
    *, low: float = -math.inf, high: float = math.inf, above: float = -math.inf, below: float = math.inf
) -> Check:
    def check(name: str, value: Any) -> None:
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

    return check


def _choice(*choices: str, function: bool = False) -> Check:
    """One of some words; with `function` also module:function."""

    def check(name: str, value: Any) -> None:
        if value in choices or (function and ":" in value):
            return
        known = ", ".join((*choices, "module:function") if function else choices)
        raise ConfigError(f"{name} {value!r} is not known.{did_you_mean(str(value), choices)} Known: {known}")

    return check


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
    batch_norm_steps   the same as a number of optimizer steps, in the place of batch_norm_freeze
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

    epochs: Annotated[int, _whole(1), _option("Passes over the data; 10 by default.", "N")] = 10
    steps: Annotated[int | None, _whole(1), _option("At most this many steps.", "N")] = None
    batch_size: Annotated[int, _whole(1), _option("Samples of a step, over all processes; 32 by default.", "N")] = 32
    accumulate: Annotated[int, _whole(1), _option("Slices of a batch, one after the other.", "N")] = 1
    lr: Annotated[
        float, _number(above=0.0), _option("Learning rate; 0.001 by default, which is much where 8 bits cost little.")
    ] = 1e-3
    scale_lr: Annotated[
        float | None, _number(low=0.0), _option("Learning rate of what fake-quantizers learn; lr / 10 by default.")
    ] = None
    optimizer: Annotated[str, _choice(*OPTIMIZERS), _option("adam (by default), adamw or sgd.")] = "adam"
    momentum: Annotated[float, _number(low=0.0, below=1.0), _option("Momentum of sgd.")] = 0.9
    weight_decay: Annotated[float, _number(low=0.0), _option("Decay of weights, of nothing else.")] = 0.0
    schedule: Annotated[str, _choice(*SCHEDULES), _option("cosine (by default), step or constant.")] = "cosine"
    warmup: Annotated[
        float, _number(low=0.0), _option("Linear warm-up: fraction of all steps, or epochs from 1 on.")
    ] = 0.0
    step_size: Annotated[float, _number(above=0.0), _option("Epochs between steps of the schedule.")] = 5.0
    gamma: Annotated[float, _number(above=0.0), _option("Factor of each step of the schedule.")] = 0.1
    clip_gradient: Annotated[float | None, _number(above=0.0), _option("Largest norm of the gradients.")] = None
    observer_freeze: Annotated[
        float | None,
        _number(low=0.0),
        _moment("When observers stop: fraction of all steps, epochs from 1 on, or never."),
    ] = 0.0
    batch_norm_freeze: Annotated[
        float | None, _number(low=0.0), _moment("When live statistics stop: as --observer-freeze.")
    ] = 0.5
    batch_norm_steps: Annotated[
        int | None, _whole(0), _option("Steps with live statistics, in the place of --batch-norm-freeze.", "N")
    ] = None
    quantize_from: Annotated[
        float | None, _number(low=0.0), _option("When quantization begins: fraction of all steps, or epochs.")
    ] = 0.0
    distill: Annotated[
        float | None, _number(low=0.0, high=1.0), _option("Share of the loss against the float model, 0 .. 1.")
    ] = None
    distill_loss: Annotated[str, _choice(*DISTILL_LOSSES), _option("kl, mse or auto.")] = "auto"
    temperature: Annotated[float, _number(above=0.0), _option("Temperature of kl.")] = 1.0
    label_loss: Annotated[
        str,
        _choice(*LABEL_LOSSES, function=True),
        _option("cross_entropy, mse, bce, auto, or module:function(outputs, labels)."),
    ] = "auto"
    label_output: Annotated[str | None, _option("Output that the labels are for; the first float one by default.")] = (
        None
    )
    recompute: Annotated[
        int, _whole(0), _option("Gradient checkpointing in N segments: less memory, more time.", "N")
    ] = 0
    seed: Annotated[int, _whole(0), _option("Same seed, same result.", "N")] = 0
    evaluate_every: Annotated[int, _whole(1), _option("Epochs between evaluations.", "N")] = 1
    best_by: Annotated[
        str | None, _choice("max", "min"), _option("max or min of the metric; the metric knows by default.")
    ] = None
    patience: Annotated[int | None, _whole(1), _option("End after N evaluations without a better metric.", "N")] = None
    checkpoint_every: Annotated[
        int | None, _whole(1), _option("Steps between checkpoints within an epoch.", "N", group="checkpoints")
    ] = None

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self), include_extras=True).items():
            value = getattr(self, name)
            if value is None and type(None) in get_args(hint.__origin__):
                continue
            for check in hint.__metadata__:
                if callable(check):
                    check(name, value)

    @property
    def scale_rate(self) -> float:
        """The learning rate of what fake-quantizers learn.

        A scale is far smaller than a weight's usual distance from 0, and Adam moves every parameter by about the
        learning rate whatever its size.
        """
        return self.lr / 10 if self.scale_lr is None else self.scale_lr

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def train_settings(
    given: TrainSettings | Mapping[str, Any] | None, beneath: Mapping[str, Any] | None = None
) -> TrainSettings:
    """Settings from what a caller has: the value itself, a mapping with some of its keys, or nothing.

    `beneath` are settings of another tool's configuration, for what the caller leaves as it is by default.
    """
    under = {key: value for key, value in (beneath or {}).items() if key in _NAMES}
    default = TrainSettings()
    if isinstance(given, TrainSettings):
        freezes = given.batch_norm_freeze != default.batch_norm_freeze
    else:
        freezes = "batch_norm_freeze" in (given or {})
    if freezes:
        under.pop("batch_norm_steps", None)  # it says the same moment, and would win over the caller's
    if isinstance(given, TrainSettings):
        open_ones = {key: value for key, value in under.items() if getattr(given, key) == getattr(default, key)}
        return replace(given, **open_ones)
    for key in given or {}:
        if key not in _NAMES:
            near = did_you_mean(key, _NAMES)
            raise ConfigError(f"'{key}' is no setting of training.{near} Known: {', '.join(_NAMES)}")
    return TrainSettings(**{**under, **(given or {})})


_NAMES = tuple(field.name for field in fields(TrainSettings))


def idle_settings(settings: TrainSettings, *, batch_norms: str, distills_by_kl: bool) -> list[str]:
    """A line for each setting that somebody has changed and that has no effect beside the others."""
    reasons = {
        "momentum": (settings.optimizer != "sgd", f"the optimizer is {settings.optimizer}"),
        "step_size": (settings.schedule != "step", f"the schedule is {settings.schedule}"),
        "gamma": (settings.schedule != "step", f"the schedule is {settings.schedule}"),
        "batch_norm_freeze": (
            batch_norms != "live" or settings.batch_norm_steps is not None,
            f"batch norms are {batch_norms}" if batch_norms != "live" else "batch_norm_steps says it",
        ),
        "batch_norm_steps": (batch_norms != "live", f"batch norms are {batch_norms}"),
        "temperature": (not distills_by_kl, "nothing is distilled by kl"),
    }
    defaults = {field.name: field.default for field in fields(TrainSettings)}
    return [
        f"{name} = {getattr(settings, name)} has no effect: {why}"
        for name, (idle, why) in reasons.items()
        if idle and getattr(settings, name) != defaults[name]
    ]
