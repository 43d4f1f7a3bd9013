"""What a reconstruction does: how the graph is cut, what is learnt, for how long. Each method is one recipe."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from onnxq.errors import ConfigError
from onnxq.json_file import JsonObject
from onnxq.ptq.method import Arguments

Learnt = Literal["roundings", "weights", "clipped"]


@dataclass(frozen=True)
class Recipe:
    """The settings of one run; learning rates have no unit, so that they fit networks of any size.

    block       "auto" (residual and attention blocks), "layer", or a number of layers as text
    learnt      "roundings": up or down for each weight; "weights": weights, their scales and biases, straight through;
                "clipped": roundings and the ranges of weights, by the signs of gradients
    scales      whether the scales of activations are learnt
    iterations  steps of the optimizer in each block
    batch       samples of a step
    lr          of roundings: how far alpha moves in a step; of weights: in parts of the step of their format
    samples     how many of the samples are used at most
    scale_lr    how far a scale moves in a step, in parts of itself; with 8 bits a quarter of that
    drop        chance of a value to stay float while a block is fitted
    """

    method: str
    block: str
    learnt: Learnt
    scales: bool
    iterations: int
    batch: int
    lr: float
    samples: int
    scale_lr: float = 0.0
    drop: float = 0.0

    def __post_init__(self) -> None:
        wrong = None
        if self.block not in ("auto", "layer") and not (self.block.isdecimal() and int(self.block) > 0):
            wrong = f"block is auto, layer, or a number of layers such as 3, got '{self.block}'"
        for name in ("iterations", "batch", "samples"):
            if getattr(self, name) < 1:
                wrong = f"{name} must be at least 1, got {getattr(self, name)}"
        for name in ("lr", "scale_lr"):
            if not 0 <= getattr(self, name) < 1:
                wrong = f"{name} must be from 0 to below 1, got {getattr(self, name)}"
        if not 0 <= self.drop < 1:
            wrong = f"drop is a chance from 0 to below 1, got {self.drop}"
        if wrong is not None:
            raise ConfigError(f"improvement '{self.method}': {wrong}")

    @classmethod
    def of(cls, method: str, settings: Arguments, **own: Any) -> Recipe:
        """The recipe of a method: what is its own, and what a user can set."""
        return cls(method, **{**own, **settings})

    def to_json(self) -> JsonObject:
        return asdict(self)
