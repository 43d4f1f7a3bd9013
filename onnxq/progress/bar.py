"""The bar of a run: in a terminal below what is printed, in a notebook in the output of its cell, nowhere else."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any

from onnxq.errors import ConfigError
from onnxq.progress.report import Progress
from onnxq.progress.tracker import Tracker, tracked

if TYPE_CHECKING:
    from rich.console import RenderableType

VARIABLE = "ONNXQ_PROGRESS"
"""Set to "no" in the environment, it turns bars off that nobody has asked for by an argument."""

OFF = ("no", "off", "false", "0")

REDRAWN_PER_SECOND = 4
NOTEBOOK_WIDTH = 100
NOTEBOOK_SECONDS = 0.5
"""Between two drawings in a notebook, where each is a message to the browser."""


@contextmanager
def watched(progress: Progress | bool | None, title: str) -> Iterator[Tracker]:
    """What a function reports to: as its caller says, by default a bar where somebody can see one."""
    if isinstance(progress, bool) or progress is None:
        shown = _is_wanted() if progress is None else progress
        with shown_bar(title, keep=True) if shown else _unseen() as tracker:
            yield tracker
    elif callable(progress):
        yield tracked(progress)
    else:
        raise ConfigError(f"progress is a function, True, False or None, got {progress!r}")


@contextmanager
def shown_bar(title: str, *, keep: bool = False) -> Iterator[Tracker]:
    """A tracker with a bar; with `keep` its last line stays, otherwise nothing of it does."""
    if in_notebook():
        tracker = Tracker()
        with _notebook_bar(tracker, title):
            yield tracker
        return
    with terminal_bar(title, keep=keep) as tracker:
        yield tracker


def can_show() -> bool:
    """Whether somebody sees what is drawn on stderr: a terminal that can move its cursor."""
    return sys.stderr.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")


def turned_off() -> bool:
    """Whether the environment wants no bars."""
    return os.environ.get(VARIABLE, "").strip().lower() in OFF


def in_notebook() -> bool:
    """Whether this runs in a kernel of Jupyter; nothing is imported to find out."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


@contextmanager
def terminal_bar(title: str, *, keep: bool = False, tracker: Tracker | None = None) -> Iterator[Tracker]:
    """A bar on stderr that is redrawn in place, of a tracker that is there or of a new one."""
    from rich.console import Console, Group
    from rich.live import Live

    from onnxq.progress.lines import ASCII, UNICODE, head, lines_of

    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    tracker = tracker or Tracker()
    signs = UNICODE if (console.encoding or "").lower().startswith("utf") else ASCII
    ended = False

    def drawn() -> RenderableType:
        view = tracker.view()
        if ended:
            return head(view, title, console.width, signs) if keep else ""
        # One cell less than the width: some terminals go to the next line when the last one is written.
        lines = lines_of(view, title, console.width - 1, console.height, signs)
        return Group(*lines)

    with Live(
        get_renderable=drawn,
        console=console,
        refresh_per_second=REDRAWN_PER_SECOND,
        transient=not keep,
        vertical_overflow="crop",
    ) as live:
        live.refresh()
        yield tracker
        ended = True


def _is_wanted() -> bool:
    return not turned_off() and (in_notebook() or can_show())


@contextmanager
def _unseen() -> Iterator[Tracker]:
    yield Tracker()


@contextmanager
def _notebook_bar(tracker: Tracker, title: str) -> Iterator[None]:
    """Drawn with what every kernel has, and when the run reports: a thread would draw into another cell."""
    from IPython.display import display  # type: ignore[import-not-found,unused-ignore]

    from onnxq.progress.lines import head, lines_of

    def bundle(*, all_of_it: bool) -> dict[str, str]:
        view = tracker.view()
        lines = lines_of(view, title, NOTEBOOK_WIDTH, 12) if all_of_it else [head(view, title, NOTEBOOK_WIDTH)]
        text = "\n".join(line.plain for line in lines)
        return {"text/plain": text, "text/html": f"<pre>{escape(text)}</pre>"}

    first = bundle(all_of_it=True)
    handle: Any = display(first, raw=True, display_id=True)  # type: ignore[no-untyped-call,unused-ignore]
    last = tracker.now()

    def report(stage: str, done: int, total: int | None) -> None:
        nonlocal last
        now = tracker.now()
        if now - last >= NOTEBOOK_SECONDS:
            last = now
            handle.update(bundle(all_of_it=True), raw=True)

    tracker.listener = report
    try:
        yield
    finally:
        handle.update(bundle(all_of_it=False), raw=True)
