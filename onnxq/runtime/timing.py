"""How fast models run beside each other, in turns.

A machine that others use changes its pace from second to second, and what it is doing at the same time counts into the
time on the wall. So every round runs all models there and back, and two of them are compared round by round: what runs
behind another has no advantage. Where one thread computes, its own processor time is what counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles  # those of numpy would import numpy.ma
from typing import TYPE_CHECKING

import numpy as np

from onnxq.graph import Graph
from onnxq.json_file import JsonObject
from onnxq.runtime.feeds import Feed
from onnxq.runtime.session import float_session, make_session, run_session

if TYPE_CHECKING:
    import onnxruntime as ort

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
        return median(self.quotients)

    @property
    def quartiles(self) -> tuple[float, float]:
        if len(self.quotients) < 2:
            return self.quotients[0], self.quotients[0]
        low, _, high = quantiles(self.quotients, n=4, method="inclusive")
        return low, high

    def to_json(self) -> JsonObject:
        low, high = self.quartiles
        return {
            "float_ms": round(self.first_ms, 4),
            "file_ms": round(self.second_ms, 4),
            "times_as_fast": round(self.times_as_fast, 3),
            "quartiles": [round(low, 3), round(high, 3)],
            "rounds": len(self.quotients),
        }


@dataclass(frozen=True)
class Turn:
    """One model in a round: what runs it, and the clock that counts it."""

    run: Run
    timer: Timer = time.thread_time


def in_turns(
    first: Run, second: Run, *, seconds: float, rounds: int = MOST_ROUNDS, timer: Timer = time.thread_time
) -> Pace:
    """Run two models in turns, within some seconds of processor time; at least one round behind a first run of each."""
    times = in_rounds([Turn(first, timer), Turn(second, timer)], seconds=seconds, rounds=rounds)
    ones, others = times.T
    quotients = ones / np.maximum(others, 1e-9)
    return Pace(1000 * median(ones.tolist()), 1000 * median(others.tolist()), tuple(quotients.tolist()))


def in_rounds(
    turns: Sequence[Turn],
    *,
    seconds: float,
    rounds: int,
    warm_up: int = 1,
    shortest: float = SHORTEST_TURN,
    before: Callable[[int], None] | None = None,
) -> np.ndarray:
    """Seconds of one run: a row for each round, a column for each model.

    A round runs all models in order, and then backwards. It begins with `before(number)`; what runs first, `warm_up`
    times of each, does not count. Rounds end behind `seconds` of all clocks, after at least one.
    """
    begun = [turn.timer() for turn in turns]
    repeated = [_repeats(turn, warm_up, shortest) for turn in turns]
    times: list[list[float]] = []
    while len(times) < rounds and (not times or _spent(turns, begun) < seconds):
        if before is not None:
            before(len(times))
        there = [_timed(turn, count) for turn, count in zip(turns, repeated, strict=True)]
        back = [_timed(turn, count) for turn, count in zip(turns[::-1], repeated[::-1], strict=True)][::-1]
        times.append([(one + other) / 2 for one, other in zip(there, back, strict=True)])
    return np.array(times)


def _repeats(turn: Turn, warm_up: int, shortest: float) -> int:
    """How often a model runs in its turn, judged by the last of its first runs, which do not count themselves."""
    spent = shortest
    for _ in range(max(1, warm_up)):
        started = turn.timer()
        turn.run()
        spent = turn.timer() - started
    return max(1, int(np.ceil(shortest / max(spent, 1e-6))))


def _spent(turns: Sequence[Turn], begun: Sequence[float]) -> float:
    """Seconds since the beginning, by the clock that says most: several may count the same time."""
    return max(turn.timer() - start for turn, start in zip(turns, begun, strict=True))


def _timed(turn: Turn, count: int) -> float:
    start = turn.timer()
    for _ in range(count):
        turn.run()
    return (turn.timer() - start) / count


def run_of_file(path: Path, feed: Feed) -> Run:
    """One run of a file as users run it, in one thread."""
    return run_of_session(make_session(path, threads=1, what=str(path)), feed)


def run_of_graph(graph: Graph, feed: Feed) -> Run:
    """The same for a model in memory."""
    return run_of_session(float_session(graph, threads=1), feed)


def run_of_session(session: ort.InferenceSession, feed: Feed) -> Run:
    """The same for a session with one thread that is there already."""
    return lambda: run_session(session, None, feed, "a measurement")
