"""The bar of a command on stderr; nothing where no one can watch it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from onnxq.cli import began
from onnxq.cli.console import say
from onnxq.cli.log import StageLog, wanted
from onnxq.progress import Tracker
from onnxq.progress.bar import can_show, terminal_bar, turned_off

if TYPE_CHECKING:
    from onnxq.qat.loop import Moment


@contextmanager
def run_bar(title: str, *, quiet: bool = False) -> Iterator[Tracker]:
    """What the stages of a command report to; shown in a terminal."""
    tracker, start = Tracker(), began()
    if start is not None:  # who waits has waited for the imports too
        tracker.started = start
    log = StageLog() if wanted() else None
    if log is not None:
        tracker.listener = log
    with terminal_bar(title, tracker=tracker) if _watched(quiet) else nullcontext():
        yield tracker
        if log is not None:
            log.end()


@contextmanager
def training_bar(title: str, *, quiet: bool) -> Iterator[tuple[Tracker, Callable[[Moment], None]]]:
    """The same for a training, and a function for each moment of it: a line per epoch where no one watches."""
    from onnxq.qat.moments import follow, told

    with run_bar(title, quiet=quiet) as tracker:
        shown = follow(tracker) if _watched(quiet) else None

        def show(moment: Moment) -> None:
            if shown is not None:
                shown(moment)
            elif moment.new_epoch:
                say(f"epoch {moment.epoch} of {moment.epochs}: step {moment.step}, {told(moment)}", quiet=quiet)

        yield tracker, show


def _watched(quiet: bool) -> bool:
    return not quiet and not turned_off() and can_show()
