"""What a run of improvements came to: every step that was tried, each effort, and the state that was best."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from onnxq.files import json_number
from onnxq.json_file import JsonObject
from onnxq.ptq.method import Chosen, Improved, State
from onnxq.ptq.search.evaluator import Score
from onnxq.ptq.search.reasons import Why
from onnxq.runtime.memory import peak_memory


@dataclass(frozen=True)
class Step:
    """A method that was tried, and what came of it; `before` and `after` are scores, None if it was not tested."""

    name: str
    paper: str
    applied: bool
    why: Why
    before: Score | None
    after: Score | None
    changed: tuple[str, ...]
    declined: tuple[str, ...]
    seconds: float
    peak_memory: int
    details: JsonObject = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        chosen: Chosen,
        why: Why,
        found: Improved | None = None,
        seconds: float = 0.0,
        *,
        applied: bool = False,
        before: Score | None = None,
        after: Score | None = None,
    ) -> Step:
        """A step that ends now; `found` is None where the method was not run, or failed."""
        changed, declined = (found.changed, found.declined) if found is not None else ((), ())
        details = dict(found.details) if found is not None else {}
        name, paper = str(chosen), chosen.method.paper
        return cls(name, paper, applied, why, before, after, changed, declined, seconds, peak_memory(), details)

    def to_json(self) -> JsonObject:
        return {
            "name": self.name,
            "paper": self.paper,
            "applied": self.applied,
            "reason": self.why.reason.value,
            "why": str(self.why),
            "before": _number(self.before),
            "after": _number(self.after),
            "changed": list(self.changed),
            "declined": list(self.declined),
            "seconds": round(self.seconds, 3),
            "peak_memory": self.peak_memory,
            **({"details": self.details} if self.details else {}),
        }


@dataclass(frozen=True)
class Level:
    """What a run had come to when all of an effort was done; `seconds` and `peak_memory` are those until then."""

    effort: int
    score: Score
    seconds: float
    peak_memory: int

    def to_json(self) -> JsonObject:
        return {
            "effort": self.effort,
            "after": _number(self.score),
            "seconds": round(self.seconds, 3),
            "peak_memory": self.peak_memory,
        }


Reached = Callable[[Level, State], None]
"""Called with what each effort up to the one that was asked for has come to."""


@dataclass(frozen=True)
class Outcome:
    """The state that was best, the scores before and after (None without data), and every step that was tried.

    `levels` has what each effort up to the one that was asked for came to: a higher one begins with all that the lower
    ones do.
    """

    state: State
    before: Score | None
    after: Score | None
    steps: tuple[Step, ...]
    samples: int
    held: int
    levels: tuple[Level, ...] = ()

    def to_json(self) -> JsonObject:
        return {
            "metric": None if self.before is None else self.before.metric,
            "before": _number(self.before),
            "after": _number(self.after),
            "fitted_to": self.samples,
            "evaluated_on": self.held,
            "levels": [level.to_json() for level in self.levels],
            "steps": [step.to_json() for step in self.steps],
        }


def _number(score: Score | None) -> float | str | None:
    if score is None:
        return None
    return json_number(round(score.value, 4))
