"""How fast a written file runs in onnxruntime on this machine, where onnxruntime is the target.

A file for another target says nothing about the speed of its chip, and is not measured.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from onnxq.errors import OnnxqError
from onnxq.graph import Graph
from onnxq.ptq.method import Samples
from onnxq.runtime.timing import Pace, in_turns, run_of_file, run_of_graph, run_of_session
from onnxq.types import Backend
from onnxq.types.note import Note
from onnxq.verify import FloatSide, KernelCount

if TYPE_CHECKING:
    from onnxq.runtime.session import OrtSession

SHARE_OF_RUN = 0.01
"""What the measurement may take of the time that the run has taken, as far as one round fits into that."""

LEAST_SECONDS = 0.03

SLOWER = 0.95
"""Below this many times as fast as float, in three of four rounds too, a file is slower: less is within the noise."""

SHORTEST_MS = 0.3
"""A float model that takes less is mostly the overhead of a call: its file may take longer without a warning."""

_NAMED = 3


def measured_speed(
    original: Graph,
    path: Path,
    backend: Backend,
    samples: Samples | None,
    seconds: float,
    side: FloatSide | None = None,
    session: OrtSession | None = None,
) -> Pace | None:
    """The file against the float model that was given, on the first sample; `seconds` is what the run took so far.

    None where there is nothing to measure: another target, no data, or a float model that onnxruntime does not run.
    `side` has perhaps serialized the float model, `session` runs the file as users do, in one thread: both are made
    where they are missing.
    """
    if not backend.runs_in_onnxruntime or samples is None:
        return None
    feed = next(iter(samples), None)
    if feed is None:
        return None
    try:
        shared = side is not None and side.graph is original
        return in_turns(
            run_of_session(side.as_users_run(threads=1), feed) if side and shared else run_of_graph(original, feed),
            run_of_file(path, feed) if session is None else run_of_session(session, feed),
            seconds=max(LEAST_SECONDS, SHARE_OF_RUN * seconds),
        )
    except OnnxqError:
        return None  # whether the file runs is what other checks say; a bfloat16 model has no float kernels


def is_slower(pace: Pace) -> bool:
    """Whether a file is slower than its float model beyond the noise, and beyond the overhead of a call."""
    return pace.first_ms >= SHORTEST_MS and pace.times_as_fast < SLOWER and pace.quartiles[1] < 1.0


def speed_warnings(pace: Pace | None, kernels: KernelCount | None, *, tuned: bool) -> list[str]:
    """What a user has to know of a file that is slower than the float model, with the remedy."""
    if pace is None or not is_slower(pace):
        return []
    costly = [] if kernels is None else sorted({*kernels.converted.values()})
    shown = ", ".join(costly[:_NAMED]) + (" and others" if len(costly) > _NAMED else "")
    cause = f" Integers become floats for {shown} (kernels in the report)." if costly else ""
    remedy = (
        "Nothing that was left float made it faster: use the float model"
        if tuned
        else "--for latency leaves float what is slower in integers"
    )
    return [
        Note(
            "slower_than_float",
            f"on this machine the file is slower than the float model: {pace.second_ms:.2f} ms instead of "
            f"{pace.first_ms:.2f} ms a run ({pace.times_as_fast:.2f} times as fast, one thread).{cause} {remedy}",
        )
    ]
