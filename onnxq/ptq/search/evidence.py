"""How sure a gain is: few samples with few outputs differ by decibels by chance."""

from __future__ import annotations

import math
from dataclasses import dataclass

from onnxq.ptq.search.evaluator import Score, doubt_db, least_gain_db, typical_gain_db

DOUBTS, DOUBTS_OF_FEW = 0.5, 2.0
"""Standard errors that a gain must be worth; of few samples, whose standard error is a guess itself, more."""

FEW = 16


@dataclass(frozen=True)
class Evidence:
    """By how much one candidate is better than another on some samples, and the standard error of that.

    `typical` is the gain with samples that count alike, which one of them cannot make alone. `least` is what is left of
    the gain without the sample that speaks most for it.
    """

    gain: float
    stderr: float
    typical: float
    samples: int
    least: float

    @property
    def is_enough(self) -> bool:
        stderrs = DOUBTS if self.samples >= FEW else DOUBTS_OF_FEW
        return self.gain > stderrs * self.stderr and self.typical >= 0 and self.least > 0

    @classmethod
    def of(cls, new: Score, old: Score, samples: int) -> Evidence:
        if new.metric != "sqnr_db":
            return cls(new.goodness - old.goodness, 0.0, 0.0, samples, new.goodness - old.goodness)
        gain, least = new.goodness - old.goodness, least_gain_db(new, old)
        return cls(gain, doubt_db(new, old), typical_gain_db(new, old), samples, least)

    def with_more(self, other: Evidence) -> Evidence:
        """The mean over the samples of both."""
        total = self.samples + other.samples
        gain = (self.gain * self.samples + other.gain * other.samples) / total
        stderr = math.hypot(self.stderr * self.samples, other.stderr * other.samples) / total
        typical = (self.typical * self.samples + other.typical * other.samples) / total
        without_own = (self.least * self.samples + other.gain * other.samples) / total
        without_other = (self.gain * self.samples + other.least * other.samples) / total
        return Evidence(gain, stderr, typical, total, min(without_own, without_other))
