"""Progress bars on stderr, one per stage; nothing where no one can watch them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from onnxq.cli.console import console
from onnxq.escapes import one_line
from onnxq.progress import Progress


@contextmanager
def stage_bars(*, quiet: bool = False) -> Iterator[Progress]:
    """A function to call with (stage, done, total); a new stage completes the one before."""
    screen = console(stderr=True)
    text = TextColumn("{task.description}", markup=False)
    columns = (SpinnerColumn(), text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*columns, console=screen, transient=True, disable=quiet or not screen.is_terminal) as bars:
        tasks: dict[str, TaskID] = {}

        def report(stage: str, done: int, total: int | None) -> None:
            if stage not in tasks:
                for task in tasks.values():
                    bars.update(task, total=1, completed=1)
                tasks[stage] = bars.add_task(one_line(stage), total=total)
            bars.update(tasks[stage], completed=done, total=total)

        yield report
