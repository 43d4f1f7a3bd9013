"""Tables of text: names are shown as they are, but for characters that a terminal would obey (`onnxq.escapes`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from io import StringIO

from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from onnxq.escapes import one_line

PIPE_WIDTH = 160
"""Columns of a table that goes into a file or another program, where there is no window to fit."""

Cell = str | tuple[str, ...]
"""What stands in a table: a text, or the lines that it is to have."""

SPACE = 2
"""Between columns, and in front of what belongs to the line above."""


def drawn_text(draw: Callable[[Console], None]) -> str:
    """What is drawn on a console, as plain text as wide as in a file; also in a notebook, where rich displays."""
    stream = StringIO()
    out = Console(
        file=stream,
        markup=False,
        emoji=False,
        highlight=False,
        width=PIPE_WIDTH,
        color_system=None,
        force_terminal=False,
        force_jupyter=False,
    )
    draw(out)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()).rstrip() + "\n"


def write_table(out: Console, title: str, columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """A table; cells that do not fit are folded, never cut. Columns named with a leading > are numbers.

    In a window that is too narrow for the names in it, each row becomes a paragraph: a name in pieces is unreadable.
    """
    columns = [one_line(column) for column in columns]
    cells = [[_shown(cell) for cell in row] for row in rows]
    if out.is_terminal and _needed_width(columns, cells) > out.width:
        _write_paragraphs(out, title, columns, cells)
        return
    table = Table(box=None, pad_edge=False, padding=(0, SPACE, 0, 0))
    names = max((len(line) for first, *_ in cells for line in first.split("\n")), default=0)
    for number, column in enumerate(columns):
        right = column.startswith(">")
        whole = right or (number == 0 and names <= out.width // 2)
        table.add_column(column.lstrip(">"), justify="right" if right else "left", overflow="fold", no_wrap=whole)
    for row in cells:
        table.add_row(*row)
    _write_titled(out, title, table)


def write_pairs(out: Console, title: str, pairs: Iterable[tuple[str, Cell]]) -> None:
    """Labels with their values; a label that repeats is printed once."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, SPACE, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    last = None
    for label, value in pairs:
        table.add_row("" if label == last else one_line(label), _shown(value))
        last = label
    _write_titled(out, title, table)


def _shown(cell: Cell) -> str:
    return one_line(cell) if isinstance(cell, str) else "\n".join(map(one_line, cell))


def _needed_width(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Columns of the screen that a table needs to keep every word whole."""
    return sum(
        max((len(word) for text in cells for word in text.split()), default=0) + SPACE
        for cells in zip(columns, *rows, strict=True)
    )


def _write_paragraphs(out: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Every row by itself: its first cell, and below it the others with their labels."""
    out.print(one_line(title), style="bold", soft_wrap=True)
    labels = [label.lstrip(">") for label in columns[1:]]
    for first, *others in rows:
        out.print(first, soft_wrap=True)
        table = Table.grid(padding=(0, SPACE, 0, 0))
        table.add_column(style="dim", no_wrap=True, min_width=max(map(len, labels), default=0))
        table.add_column(overflow="fold")
        for label, cell in zip(labels, others, strict=True):
            if cell:
                table.add_row(label, cell)
        _draw(out, Padding(table, (0, 0, 0, SPACE)))
    out.print()


def _write_titled(out: Console, title: str, table: Table) -> None:
    out.print(one_line(title), style="bold", soft_wrap=True)
    _draw(out, table)
    out.print()


def _draw(out: Console, drawn: Table | Padding) -> None:
    """Print; into a file or another program without the spaces that fill the lines of a table."""
    if out.is_terminal:
        out.print(drawn)
        return
    with out.capture() as captured:
        out.print(drawn)
    for line in captured.get().splitlines():
        out.print(line.rstrip(), soft_wrap=True)


def human_bytes(count: int) -> str:
    """12,345,678 -> "11.8 MiB"; below 1 KiB whole bytes."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{count} B" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable")
