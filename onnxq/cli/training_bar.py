"""Progress of a training on stderr: a bar with the numbers of the step; a line for each epoch where no one watches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from onnxq.cli.console import console, say
from onnxq.escapes import one_line
from onnxq.progress import Progress as Report  # one of rich stands here too

if TYPE_CHECKING:
    from onnxq.qat.loop import Moment

SMOOTHING = 0.1
"""Weight of the newest step in the time of a step that is shown."""


@contextmanager
def training_bars(*, quiet: bool) -> Iterator[tuple[Report, Callable[[Moment], None]]]:
    """Two functions: one to call with (stage, done, total) before and after training, one with each moment of it."""
    screen = console(stderr=True)
    text, numbers = TextColumn("{task.description}", markup=False), TextColumn("{task.fields[numbers]}", markup=False)
    columns = (SpinnerColumn(), text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), numbers)
    watched = screen.is_terminal and not quiet
    with Progress(*columns, console=screen, transient=True, disable=not watched) as bars:
        tasks: dict[str, TaskID] = {}
        seconds = 0.0

        def report(stage: str, done: int, total: int | None, numbers: str = "") -> None:
            if stage not in tasks:
                for task in tasks.values():
                    bars.update(task, total=1, completed=1)
                tasks[stage] = bars.add_task(one_line(stage), total=total, numbers=numbers)
            bars.update(tasks[stage], completed=done, total=total, numbers=numbers)

        def show(moment: Moment) -> None:
            nonlocal seconds
            if moment.new_epoch:
                if not watched:
                    say(f"epoch {moment.epoch} of {moment.epochs}: step {moment.step}, {told(moment)}", quiet=quiet)
                return
            new = moment.seconds_per_step
            seconds = new if not seconds else (1 - SMOOTHING) * seconds + SMOOTHING * new
            numbers = f"epoch {moment.epoch}/{moment.epochs}, {told(moment)}, {seconds:.3g} s/step"
            report("train", moment.step, moment.steps, numbers)

        yield report, show


def told(moment: Moment) -> str:
    """The numbers of a moment in a line."""
    parts = [] if moment.loss is None else [f"loss {moment.loss:.4g}"]
    parts.append(f"lr {moment.lr:.3g}")
    if moment.metric is not None:
        parts.append(f"{moment.metric_name} {moment.metric:.4g}")
    return ", ".join(parts)
