"""The bar of a command on stderr; nothing where no one can watch it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from onnxq.cli import began
from onnxq.cli.console import say
from onnxq.progress import Tracker
from onnxq.progress.bar import can_show, terminal_bar, turned_off

if TYPE_CHECKING:
    from onnxq.qat.loop import Moment

SMOOTHING = 0.1
"""Weight of the newest step in the time of a step that is shown."""


@contextmanager
def run_bar(title: str, *, quiet: bool = False) -> Iterator[Tracker]:
    """What the stages of a command report to; shown in a terminal."""
    tracker, start = Tracker(), began()
    if start is not None:  # who waits has waited for the imports too
        tracker.started = start
    with terminal_bar(title, tracker=tracker) if _watched(quiet) else nullcontext():
        yield tracker


@contextmanager
def training_bar(title: str, *, quiet: bool) -> Iterator[tuple[Tracker, Callable[[Moment], None]]]:
    """The same for a training, and a function for each moment of it: a line per epoch where no one watches."""
    watched = _watched(quiet)
    with run_bar(title, quiet=quiet) as tracker:
        seconds = 0.0

        def show(moment: Moment) -> None:
            nonlocal seconds
            if moment.new_epoch:
                if not watched:
                    say(f"epoch {moment.epoch} of {moment.epochs}: step {moment.step}, {told(moment)}", quiet=quiet)
                return
            new = moment.seconds_per_step
            seconds = new if not seconds else (1 - SMOOTHING) * seconds + SMOOTHING * new
            tracker("train", moment.step, moment.steps)
            tracker.tell(f"epoch {moment.epoch}/{moment.epochs}, {told(moment)}, {seconds:.3g} s/step")

        yield tracker, show


def told(moment: Moment) -> str:
    """The numbers of a moment in a line."""
    parts = [] if moment.loss is None else [f"loss {moment.loss:.4g}"]
    parts.append(f"lr {moment.lr:.3g}")
    if moment.metric is not None:
        parts.append(f"{moment.metric_name} {moment.metric:.4g}")
    return ", ".join(parts)


def _watched(quiet: bool) -> bool:
    return not quiet and not turned_off() and can_show()
