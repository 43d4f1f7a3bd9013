"""What a bar shows, as lines of text that fit into a width: the whole run first, its stages below."""

from __future__ import annotations

from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from onnxq.escapes import one_line
from onnxq.progress.durations import clock_text
from onnxq.progress.tracker import Stage, View

WIDEST_BAR, NARROWEST_BAR = 40, 8
MOST_STAGES = 8
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
TURNS_PER_SECOND = 8


@dataclass(frozen=True)
class Signs:
    """The letters that bars are drawn with."""

    full: str
    empty: str
    finished: str
    spinner: str
    cut: str


UNICODE = Signs("━", "─", "✓", SPINNER, "…")
ASCII = Signs("#", "-", "+", "|/-\\", "~")


def lines_of(view: View, title: str, width: int, height: int, signs: Signs = UNICODE) -> list[Text]:
    """The bar of the whole run, and its latest stages; no line is wider than `width`."""
    width = max(width, 1)
    count = min(MOST_STAGES, max(height - 2, 0))
    stages = view.lines[-count:] if count else ()
    named = max((cell_len(one_line(stage.name)) for stage in stages), default=0)
    return [head(view, title, width, signs), *(_stage(stage, view, width, named, signs) for stage in stages)]


def head(view: View, title: str, width: int, signs: Signs = UNICODE) -> Text:
    """The line of the whole run; what matters least is left out first where it is narrow."""
    share = f"{int(view.share * 100):3d} %"
    left = "" if view.share >= 1 else "-:-- left" if view.left is None else f"{clock_text(view.left)} left"
    parts = {
        "title": one_line(title),
        "share": share,
        "db": "" if view.db is None else f"{view.db:.1f} dB",
        "left": left,
        "elapsed": f"({clock_text(view.elapsed)})",
    }
    wanted = [name for name, text in parts.items() if text]
    for dropped in ("elapsed", "title", "db", "left"):
        room = width - _joined(parts, wanted) - 1
        if room >= NARROWEST_BAR or (dropped in ("db", "left") and room >= -1):
            break
        if dropped in wanted:
            wanted.remove(dropped)
    room = width - _joined(parts, wanted) - 1
    line = Text(no_wrap=True, overflow="crop")
    if "title" in wanted:
        line.append(parts["title"] + " ", "bold")
    if room >= NARROWEST_BAR:
        cells = min(room, WIDEST_BAR)
        full = int(view.share * cells)
        line.append(signs.full * full, "green" if view.share >= 1 else "cyan")
        line.append(signs.empty * (cells - full) + " ", "dim")
    line.append(" ".join(parts[name] for name in wanted if name != "title"))
    line.truncate(width)
    return line


def _joined(parts: dict[str, str], wanted: list[str]) -> int:
    return sum(cell_len(parts[name]) for name in wanted) + max(len(wanted) - 1, 0)


def _stage(stage: Stage, view: View, width: int, named: int, signs: Signs) -> Text:
    running = stage.since is not None
    turn = signs.spinner[int(view.elapsed * TURNS_PER_SECOND) % len(signs.spinner)]
    mark = turn if running else signs.finished if not stage.open else " "
    # What is counted stands behind the name, the time at the end.
    counted = "" if stage.total is None or (not stage.open and not running) else f" {stage.done}/{stage.total}"
    seconds = f" {clock_text(stage.seconds(view.now))}"
    numbers = f" {one_line(stage.numbers)}" if stage.numbers else ""
    text = one_line(stage.name)
    room = width - 4 - cell_len(counted) - cell_len(seconds)
    if room < 4:
        counted, room = "", width - 4 - cell_len(seconds)
    shown = _fitted(text, min(max(named, 4), max(room, 1)), signs)
    line = Text(f"  {mark} ", no_wrap=True, overflow="crop", style="" if running else "dim")
    line.append(shown + counted + seconds)
    rest = width - cell_len(line.plain)
    if numbers and rest > 4:
        line.append(_cut(numbers, rest, signs))
    line.truncate(width)
    return line


def _fitted(text: str, cells: int, signs: Signs) -> str:
    """The text in exactly so many cells."""
    return set_cell_size(_cut(text, cells, signs), cells)


def _cut(text: str, cells: int, signs: Signs) -> str:
    if cell_len(text) <= cells:
        return text
    return set_cell_size(text, max(cells - 1, 0)) + signs.cut if cells > 1 else set_cell_size(text, cells)
