"""Everything in training that depends on the step alone: learning rates, and when observers and statistics freeze.

With s the step, W the steps of warm-up and T all steps, the factor of the learning rates is

    (s + 1) / W                              while s < W
    (1 + cos(pi (s - W) / (T - W))) / 2      cosine
    gamma ^ floor(epochs since W / size)     step
    1                                        constant

Nothing has a state, so that a run that goes on from a checkpoint needs the number of the step and nothing else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from onnxq.config.training import TrainSettings


@dataclass(frozen=True)
class Schedule:
    """Settings made concrete for data of a known length: `steps` in all, `per_epoch` of them in each epoch."""

    settings: TrainSettings
    steps: int
    per_epoch: int

    @classmethod
    def of(cls, settings: TrainSettings, per_epoch: int) -> Schedule:
        whole = settings.epochs * per_epoch
        return cls(settings, whole if settings.steps is None else min(whole, settings.steps), per_epoch)

    def factor(self, step: int) -> float:
        """What the learning rates are multiplied with at a step, from 0 on."""
        settings, warm = self.settings, self.first_step(self.settings.warmup)
        if step < warm:
            return (step + 1) / warm
        if settings.schedule == "cosine":
            return 0.5 * (1.0 + math.cos(math.pi * (step - warm) / max(self.steps - warm, 1)))
        if settings.schedule == "step":
            return settings.gamma ** math.floor((step - warm) / (settings.step_size * self.per_epoch) + 1e-9)
        return 1.0

    def first_step(self, moment: float) -> int:
        """The step that a moment is: a fraction of all steps below 1, a number of epochs from 1 on."""
        return round(moment * (self.steps if moment < 1 else self.per_epoch))

    def observing(self, step: int) -> bool:
        return self._before(self.settings.observer_freeze, step)

    def live_statistics(self, step: int) -> bool:
        if self.settings.batch_norm_steps is not None:
            return step < self.settings.batch_norm_steps
        return self._before(self.settings.batch_norm_freeze, step)

    def quantizing(self, step: int) -> bool:
        begin = self.settings.quantize_from
        return begin is not None and step >= self.first_step(begin)

    def _before(self, moment: float | None, step: int) -> bool:
        return moment is None or step < self.first_step(moment)
