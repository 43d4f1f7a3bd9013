"""How much faster one model runs than another: both in turns, each in one thread, in processor time.

A machine that others use changes its pace from second to second, and what it is doing at the same time counts into the
time on the wall. So every round runs both models twice, the second one in the middle, and gives one quotient: what runs
behind the other has no advantage. The thread's own processor time is what counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from onnxq.graph import Graph
from onnxq.json_file import JsonObject
from onnxq.runtime.feeds import Feed
from onnxq.runtime.session import float_session, make_session, run_session

MOST_ROUNDS = 9
SHORTEST_TURN = 0.002
"""Seconds: a model that takes less is run several times in its turn."""

Run = Callable[[], object]
Timer = Callable[[], float]


@dataclass(frozen=True)
class Pace:
    """What a second model takes against a first one: milliseconds of each, and the quotients first / second.

    `quotients` has one number for each round: above 1 the second model is the faster one.
    """

    first_ms: float
    second_ms: float
    quotients: tuple[float, ...]

    @property
    def times_as_fast(self) -> float:
        return float(np.median(self.quotients))

    @property
    def quartiles(self) -> tuple[float, float]:
        low, high = np.percentile(self.quotients, (25, 75))
        return float(low), float(high)

    def to_json(self) -> JsonObject:
        low, high = self.quartiles
        return {
            "float_ms": round(self.first_ms, 4),
            "file_ms": round(self.second_ms, 4),
            "times_as_fast": round(self.times_as_fast, 3),
            "quartiles": [round(low, 3), round(high, 3)],
            "rounds": len(self.quotients),
        }


def in_turns(
    first: Run, second: Run, *, seconds: float, rounds: int = MOST_ROUNDS, timer: Timer = time.thread_time
) -> Pace:
    """Run two models in turns, within some seconds of processor time; at least one round behind a first run of each."""
    started = timer()
    first()
    second()  # what a first run prepares does not count
    spent = timer() - started
    turns = max(1, int(np.ceil(2 * SHORTEST_TURN / max(spent, 1e-6))))
    times: list[tuple[float, float]] = []
    while len(times) < rounds and (not times or timer() - started < seconds):
        one, other, again, last = (_timed(run, turns, timer) for run in (first, second, second, first))
        times.append((one + last, other + again))
    ones, others = np.array(times).T
    quotients = tuple(float(one) / max(float(other), 1e-9) for one, other in times)
    return Pace(500 * float(np.median(ones)), 500 * float(np.median(others)), quotients)


def _timed(run: Run, turns: int, timer: Timer) -> float:
    start = timer()
    for _ in range(turns):
        run()
    return (timer() - start) / turns


def run_of_file(path: Path, feed: Feed) -> Run:
    """One run of a file as users run it, in one thread."""
    session = make_session(path, threads=1, what=str(path))
    return lambda: run_session(session, None, feed, "a measurement")


def run_of_graph(graph: Graph, feed: Feed) -> Run:
    """The same for a model in memory."""
    session = float_session(graph, threads=1)
    return lambda: run_session(session, None, feed, "a measurement")
