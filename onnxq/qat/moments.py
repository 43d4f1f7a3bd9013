"""Moments of a training for who waits: as a line of text, and as the stage of a run that a bar shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from onnxq.progress import Tracker

if TYPE_CHECKING:
    from onnxq.qat.loop import Moment

SMOOTHING = 0.1
"""Weight of the newest step in the time of a step that is shown."""


def follow(tracker: Tracker) -> Callable[[Moment], None]:
    """A function to call with each moment, which tells a tracker of it."""
    seconds = 0.0

    def show(moment: Moment) -> None:
        nonlocal seconds
        if moment.new_epoch:
            return
        new = moment.seconds_per_step
        seconds = new if not seconds else (1 - SMOOTHING) * seconds + SMOOTHING * new
        tracker("train", moment.step, moment.steps)
        tracker.tell(f"epoch {moment.epoch}/{moment.epochs}, {told(moment)}, {seconds:.3g} s/step")

    return show


def told(moment: Moment) -> str:
    """The numbers of a moment in a line."""
    parts = [] if moment.loss is None else [f"loss {moment.loss:.4g}"]
    parts.append(f"lr {moment.lr:.3g}")
    if moment.metric is not None:
        parts.append(f"{moment.metric_name} {moment.metric:.4g}")
    return ", ".join(parts)
