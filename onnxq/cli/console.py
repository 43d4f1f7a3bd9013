"""Where text goes: results to stdout, everything said on the way to stderr.

Names are printed as they are, but for characters that a terminal would obey (`onnxq.escapes`): nothing that comes from
a model or a file can move the cursor, or begin a line of its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from onnxq.cli.log import note
from onnxq.escapes import lines, one_line

PIPE_WIDTH = 160
"""Columns of a table that goes into a file or another program, where there is no window to fit."""

Cell = str | tuple[str, ...]
"""What stands in a table: a text, or the lines that it is to have."""

SPACE = 2
"""Between columns, and in front of what belongs to the line above."""


def console(*, stderr: bool = False) -> Console:
    """A console that takes nothing for markup: tensor names hold brackets and colons."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PIPE_WIDTH
    return Console(stderr=stderr, markup=False, emoji=False, highlight=False, width=width)


def print_error(message: str) -> None:
    note("error", message)
    _print_labelled("error", "bold red", message)


def print_warning(message: str) -> None:
    note("warning", message)
    _print_labelled("warning", "yellow", message)


def say(message: str, *, quiet: bool = False) -> None:
    """A line for the person who waits, on stderr."""
    if not quiet:
        console(stderr=True).print(lines(message), soft_wrap=True)


def print_json(data: Any) -> None:
    """Exactly one JSON document on stdout; escapes keep it readable in every encoding."""
    text = json.dumps(data, indent=2, allow_nan=False)
    sys.stdout.write(text.replace("\x7f", "\\u007f") + "\n")  # the one control character that is no escape in JSON


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """A table on stdout; cells that do not fit are folded, never cut. Columns named with a leading > are numbers.

    In a window that is too narrow for the names in it, each row becomes a paragraph: a name in pieces is unreadable.
    """
    columns = [one_line(column) for column in columns]
    cells = [[_shown(cell) for cell in row] for row in rows]
    out = console()
    if out.is_terminal and _needed_width(columns, cells) > out.width:
        _print_paragraphs(out, title, columns, cells)
        return
    table = Table(box=None, pad_edge=False, padding=(0, SPACE, 0, 0))
    names = max((len(line) for first, *_ in cells for line in first.split("\n")), default=0)
    for number, column in enumerate(columns):
        right = column.startswith(">")
        whole = right or (number == 0 and names <= out.width // 2)
        table.add_column(column.lstrip(">"), justify="right" if right else "left", overflow="fold", no_wrap=whole)
    for row in cells:
        table.add_row(*row)
    _print_titled(title, table)


def print_pairs(title: str, pairs: Iterable[tuple[str, Cell]]) -> None:
    """Labels with their values on stdout; a label that repeats is printed once."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, SPACE, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    last = None
    for label, value in pairs:
        table.add_row("" if label == last else one_line(label), _shown(value))
        last = label
    _print_titled(title, table)


def print_blank_line() -> None:
    console().print()


def _shown(cell: Cell) -> str:
    return one_line(cell) if isinstance(cell, str) else "\n".join(map(one_line, cell))


def _needed_width(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Columns of the screen that a table needs to keep every word whole."""
    return sum(
        max((len(word) for text in cells for word in text.split()), default=0) + SPACE
        for cells in zip(columns, *rows, strict=True)
    )


def _print_paragraphs(out: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
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
        out.print(Padding(table, (0, 0, 0, SPACE)))
    out.print()


def _print_titled(title: str, table: Table) -> None:
    out = console()
    out.print(one_line(title), style="bold", soft_wrap=True)
    out.print(table)
    out.print()


def human_bytes(count: int) -> str:
    """12,345,678 -> "11.8 MiB"; below 1 KiB whole bytes."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{count} B" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable")


def _print_labelled(label: str, style: str, message: str) -> None:
    console(stderr=True).print(Text.assemble((f"{label}: ", style), lines(message)), soft_wrap=True)
