"""A limit of time for a run: what fits is done, what does not is left out and recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from onnxq.progress.durations import duration_text

TOLERANCE = 0.2
"""By how much a run may miss its limit and still count as one that has kept it."""


NOT_OBEYED = "a limit of time is for 'onnxq quantize': here it has no effect"
"""What other runs say of a limit in their configuration."""


class OutOfTime(Exception):
    """A part of a run that may be left out does not fit into its time; whoever began it leaves it out."""


class Part(Enum):
    """The parts of a run that a limit leaves out."""

    STEP = "step"  # of the search for a better model
    DIAGNOSIS = "diagnosis"
    LAYERS = "layers"  # their noise, on the page


@dataclass(frozen=True)
class LeftOut:
    """What there was no time for.

    what        its name: for a step, that of the method with its arguments
    step        number of the step, as report.json counts them from 1; None for other parts
    seconds     what it was expected to take; None where nothing tells
    begun       whether it was begun and broken off
    """

    part: Part
    what: str
    step: int | None = None
    seconds: float | None = None
    begun: bool = False

    def __str__(self) -> str:
        return self.what if self.seconds is None else f"{self.what} (about {duration_text(self.seconds)})"


@dataclass
class TimeLimit:
    """So many `seconds` from `started` on, by the clock `now`; `left_out` is in the order in which it was decided."""

    seconds: float
    started: float
    now: Callable[[], float]
    left_out: list[LeftOut] = field(default_factory=list)
    needed: float | None = None

    @property
    def taken(self) -> float:
        return self.now() - self.started

    @property
    def remaining(self) -> float:
        return self.seconds - self.taken

    @property
    def kept(self) -> bool:
        return self.taken <= (1 + TOLERANCE) * self.seconds

    def steps(self) -> tuple[LeftOut, ...]:
        """The steps of the search that were left out."""
        return tuple(one for one in self.left_out if one.step is not None)

    def would_take(self) -> float | None:
        """What the run would take with everything that was left out; None where nothing tells."""
        known = [one.seconds for one in self.left_out]
        return None if None in known else self.taken + sum(one for one in known if one is not None)
