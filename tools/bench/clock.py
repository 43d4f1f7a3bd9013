"""Times beside the floor: each measurement stands between two runs of the floor, so that load on the machine shows."""

from __future__ import annotations

import gc
import re
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tools.bench.child import ChildFailed
from tools.bench.peers.protocol import Action, seconds_of

Measure = Callable[[], float]
"""Sets something up, does it once, and returns the seconds of the second part."""


QUIET = 1.35
"""Largest spread of the floor at which ratios are worth comparing."""


@dataclass(frozen=True)
class Timing:
    """All repeats of one measurement; `ratios` are to the mean of the floors directly before and after each.

    `note` says why there are no (more) repeats, or why not to trust them.
    """

    seconds: tuple[float, ...]
    ratios: tuple[float, ...]
    note: str = ""

    def columns(self, samples: int) -> dict[str, object]:
        if not self.seconds:
            return {"seconds": "", "ms per sample": "", "x floor": "", "min .. max": "", "note": self.note}
        middle = statistics.median(self.seconds)
        return {
            "seconds": round(middle, 3),
            "ms per sample": round(1000 * middle / samples, 2),
            "x floor": round(statistics.median(self.ratios), 2),
            "min .. max": f"{min(self.ratios):.2f} .. {max(self.ratios):.2f}",
            "note": self.note,
        }


CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
"""What counts: the time on the clock, or the seconds of all threads, which other work on the machine disturbs less."""


def clocked(set_up: Callable[[], Action], clock: str = "wall") -> Measure:
    def measure() -> float:
        action = set_up()
        gc.collect()
        return seconds_of(action, CLOCKS[clock])

    return measure


def alternate(floor: Measure, measures: Mapping[str, Measure], repeats: int) -> tuple[Timing, dict[str, Timing]]:
    """floor, first, floor, second, floor, ... and all of that `repeats` times; one that fails is not tried again.

    The ratios of the floor's own timing are to its median: how far they spread is how quiet the machine was.
    """
    floors: list[float] = []
    seconds: dict[str, list[float]] = {name: [] for name in measures}
    ratios: dict[str, list[float]] = {name: [] for name in measures}
    failures: dict[str, str] = {}
    for _ in range(repeats):
        before = floor()
        floors.append(before)
        for name, measure in measures.items():
            if name in failures:
                continue
            taken = None
            try:
                taken = measure()
            except Exception as error:  # whatever a tool raises is the result of its row
                failures[name] = failure_text(error)
            after = floor()
            floors.append(after)
            if taken is not None:
                seconds[name].append(taken)
                ratios[name].append(2 * taken / (before + after))
            before = after
    quiet = statistics.median(floors)
    timings = {name: Timing(tuple(seconds[name]), tuple(ratios[name]), failures.get(name, "")) for name in measures}
    spread = max(floors) / min(floors)
    note = f"not a quiet machine: the slowest took {spread:.1f} times the fastest" if spread > QUIET else ""
    return Timing(tuple(floors), tuple(value / quiet for value in floors), note), timings


def failure_text(error: Exception) -> str:
    """One line for a table, with files named without their folders."""
    kind = "" if isinstance(error, ChildFailed) else f"{type(error).__name__}: "
    text = re.sub(r"(?:/[\w.+-]+)+/", "", " ".join(str(error).split()))
    return f"failed: {kind}{text[:200]}"
