"""How one model fared on one target at one effort, as a value."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

DEAD_DB, GOOD_DB = 3.0, 10.0
"""A part below the first has more noise than half its signal and is useless; below the second it is low."""
GOOD_AGREEMENT = 0.85


class Verdict(Enum):
    """The value is what stands in results and tables."""

    GOOD = "good"
    LOW = "low"
    REFUSED = "refused"
    UNAVAILABLE = "not to be had"
    DEAD_PART = "FAILED: exit 0 with a dead part"
    UNEXPLAINED = "FAILED: refused without a cause and a next step"
    INTERNAL_FAULT = "FAILED: internal fault"
    TIME_OUT = "FAILED: time out"
    UNUSABLE_FILE = "FAILED: exit 0 with a file that does not run"
    GATE_FAULT = "FAILED: the measurement itself ended"

    @property
    def failed(self) -> bool:
        return self not in _NOT_FAILED

    @property
    def final(self) -> bool:
        """Not where the gate or the registry is at fault: that is tried again."""
        return self not in (Verdict.UNAVAILABLE, Verdict.GATE_FAULT)

    @property
    def rank(self) -> int:
        """Lower is worse."""
        return {Verdict.GOOD: 3, Verdict.LOW: 2, Verdict.REFUSED: 1}.get(self, 0)


_NOT_FAILED = (Verdict.GOOD, Verdict.LOW, Verdict.REFUSED, Verdict.UNAVAILABLE)


@dataclass(frozen=True)
class Key:
    """What a result belongs to: a file of a model, a target, an effort, and the code that was asked."""

    sha256: str
    target: str
    effort: int
    code: str


@dataclass(frozen=True)
class Cell:
    """One result. `worst_db` is the lowest of all outputs and parts, `worst` names it; `reason` is what was printed.

    `reported_db` is the lowest figure in onnxq's own report, for comparison.
    """

    model: str
    key: Key
    verdict: Verdict
    exit_code: int | None = None
    worst: str | None = None
    worst_db: float | None = None
    reported_db: float | None = None
    agreement: float | None = None
    reason: str = ""
    seconds: float = 0.0
    samples: int = 0

    def to_json(self) -> str:
        values = asdict(self) | {"verdict": self.verdict.value}
        return json.dumps({key: _written(value) for key, value in values.items()})

    @staticmethod
    def from_json(text: str) -> Cell:
        values: dict[str, Any] = json.loads(text)
        figures = {name: float(values[name]) for name in _FIGURES if values[name] is not None}
        return Cell(**values | figures | {"key": Key(**values["key"]), "verdict": Verdict(values["verdict"])})


_FIGURES = ("worst_db", "reported_db", "agreement")


def _written(value: object) -> object:
    """Numbers that JSON does not know as text: `inf`, `nan`."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def rate_accuracy(worst_db: float | None, agreement: float | None) -> Verdict:
    """Of a run with exit code 0 whose file runs; None is a figure that there is none of."""
    if worst_db is not None and (math.isnan(worst_db) or worst_db < DEAD_DB):
        return Verdict.DEAD_PART
    low = (worst_db is not None and worst_db < GOOD_DB) or (agreement is not None and agreement < GOOD_AGREEMENT)
    return Verdict.LOW if low else Verdict.GOOD
